fn greeting(name: &str) -> String {
    format!("Good morning, {name}")
}

fn main() {
    println!("{}", greeting("dormouse"));
}
