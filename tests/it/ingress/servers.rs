//! Tests `ingress` behind real servers, each an ordinary process on a free port.
//!
//! A server that is not installed is left out, and listed at the end of the tests.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Hook, hook, queued};
use crate::harness::{Sandbox, write_program};
use crate::setup::{eventually, started};

/// Returns the path of a program, or `None` if the machine lacks it.
fn program(name: &str, package: &str) -> Option<PathBuf> {
    let found = crate::missing_tools::find(name);
    assert!(found.is_some() || !crate::missing_tools::has(&[name]), "{package}");
    found
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Processes of a server, which end with the test.
pub struct Server {
    pub children: Vec<Child>,
    pub port: u16,
    /// Prefix of the path of a request.
    pub path: &'static str,
    _dir: TempDir,
}

impl Server {
    fn base(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.path)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Apache ends its workers on SIGTERM, and would leave them behind on SIGKILL.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
            let _ = child.wait();
        }
    }
}

/// Starts the processes of a server, and waits until its port accepts connections.
fn serve(
    sandbox: &Sandbox,
    dir: TempDir,
    port: u16,
    path: &'static str,
    commands: impl IntoIterator<Item = Command>,
) -> Server {
    let start = |mut command: Command| {
        sandbox.run_as_owner(&mut command);
        // Apache signals its whole process group, so each server gets a group of its own.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let server = Server { children: commands.into_iter().map(start).collect(), port, path, _dir: dir };
    eventually("the server", || TcpStream::connect(("127.0.0.1", port)).ok());
    server
}

/// Makes a directory for the files of a server.
fn dir_of(sandbox: &Sandbox) -> TempDir {
    tempfile::tempdir_in(sandbox.home()).unwrap()
}

/// Writes the CGI script that runs `ingress` in the project of a sandbox.
fn script(sandbox: &Sandbox, dir: &Path) -> PathBuf {
    let path = dir.join("hook.cgi");
    let program = sandbox.dormouse();
    let text = format!("#!/bin/sh\nexec {} -C {} ingress\n", program.display(), sandbox.project().display());
    write_program(&path, &text);
    path
}

/// Returns the status and the body that curl gets.
fn curl(args: &[&str]) -> (u16, Value) {
    let out = Command::new("curl")
        .args(["--silent", "--max-time", "15", "--write-out", "\n%{http_code}"])
        .args(args)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap_or(("", "0"));
    (status.parse().unwrap(), serde_json::from_str(body.trim()).unwrap_or(Value::Null))
}

/// Asserts that valid deliveries of curl are queued once, and the others are refused.
fn deliveries_come_through(sandbox: &Sandbox, server: &Server) {
    let Some(_) = program("curl", "curl") else { return };
    let base = server.base();
    let by_secret = hook(sandbox, &[]);
    let signed = hook(sandbox, &["--verify", "hmac_sha256", "--source", "webhook:github"]);
    let url = |hook: &Hook| format!("{base}{}", hook.path);
    let bearer = format!("Authorization: Bearer {}", by_secret.secret);
    let json_type = "Content-Type: application/json";
    assert_eq!(curl(&[&format!("{base}/healthz")]), (200, json!({ "status": "ok" })));
    assert_eq!(curl(&[&format!("{base}/nothing")]).0, 404);
    let (status, answer) = curl(&["-H", &bearer, "-H", json_type, "-d", "{\"n\":1}", &url(&by_secret)]);
    assert_eq!(status, 202, "{answer}");
    let message = sandbox.json(["queue", "show", answer["message_id"].as_str().unwrap()]);
    assert!(message["source_refs"].to_string().contains("http:remote:127.0.0.1"), "{message}");
    assert_eq!(
        curl(&["-H", "Authorization: Bearer x", "-H", json_type, "-d", "{}", &url(&by_secret)]).0,
        401
    );
    let image = ["-H", &bearer, "-H", "Content-Type: image/png", "-d", "form=1", &url(&by_secret)];
    assert_eq!(curl(&image).0, 415);
    let body = "{\"action\":\"opened\",\"number\":12}";
    let signature = format!("X-Hub-Signature-256: {}", signed.signature(body));
    let github = ["-H", json_type, "-H", &signature, "-H", "X-GitHub-Delivery: one", "-d", body];
    for is_repeated in [false, true] {
        let (status, answer) = curl(&[&github[..], &[&url(&signed)]].concat());
        assert_eq!((status, &answer["duplicate"]), (202, &json!(is_repeated)), "{answer}");
    }
    let forged = ["-H", json_type, "-H", &signature, "-d", "{\"action\":\"closed\"}", &url(&signed)];
    assert_eq!(curl(&forged).0, 401);
    let large = sandbox.root().join("large");
    fs::write(&large, "x".repeat(900_000)).unwrap();
    let file = format!("@{}", large.display());
    let sent =
        curl(&["-H", &bearer, "-H", "Content-Type: text/plain", "--data-binary", &file, &url(&by_secret)]);
    assert_eq!(sent.0, 202, "{}", sent.1);
    assert_eq!(queued(sandbox).len(), 3);
}

#[test]
fn deliveries_pass_through_a_systemd_socket() {
    let sandbox = started("true").with_real_clock();
    let Some(activate) = program("systemd-socket-activate", "systemd") else { return };
    let port = free_port();
    let socket = socket(&sandbox, &activate, port);
    deliveries_come_through(&sandbox, &serve(&sandbox, dir_of(&sandbox), port, "", [socket]));
}

/// Returns the command of a systemd socket on this port, which starts `ingress` for each
/// connection.
fn socket(sandbox: &Sandbox, activate: &Path, port: u16) -> Command {
    let mut command = Command::new(activate);
    command.args(["--accept", "--inetd", "--listen", &format!("127.0.0.1:{port}"), "--"]);
    command.arg(sandbox.dormouse()).args(["-C", sandbox.project().to_str().unwrap(), "ingress"]);
    command
}

/// Tests a web server with the settings of one of our examples, which passes deliveries on to a
/// systemd socket. In `settings`, `DIR` is the directory of the server, `PORT` its port, and
/// `EXAMPLE` the text of the example.
fn through_the_example(name: &str, package: &str, example: &str, settings: &str, args: &[&str]) {
    let sandbox = started("true").with_real_clock().of_an_ordinary_user();
    let Some(server) = program(name, package) else { return };
    let Some(activate) = program("systemd-socket-activate", "systemd") else { return };
    let dir = dir_of(&sandbox);
    let (port, behind) = (free_port(), free_port());
    let example =
        crate::docs::read(&format!("examples/webhook/{example}")).replace("8080", &behind.to_string());
    let text = settings.replace("EXAMPLE", &example).replace("DIR", dir.path().to_str().unwrap());
    let conf = dir.path().join("conf");
    fs::write(&conf, text.replace("PORT", &port.to_string())).unwrap();
    sandbox.give_to_owner(dir.path());
    let mut command = Command::new(server);
    command.args(args).arg(&conf);
    let socket = socket(&sandbox, &activate, behind);
    let server = serve(&sandbox, dir, port, "/hooks", [socket, command]);
    eventually("the socket", || TcpStream::connect(("127.0.0.1", behind)).ok());
    deliveries_come_through(&sandbox, &server);
}

#[test]
fn deliveries_pass_through_the_lighttpd_example() {
    let settings = "server.document-root = \"DIR\"\nserver.bind = \"127.0.0.1\"\nserver.port = PORT\nEXAMPLE";
    through_the_example("lighttpd", "lighttpd", "lighttpd.conf", settings, &["-D", "-f"]);
}

/// Returns settings of nginx. `main` are more lines outside of `http`, `server` lines of the only
/// server.
fn nginx_settings(dir: &str, port: &str, main: &str, server: &str) -> String {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {dir}/{kind};\n"))
        .concat();
    format!(
        "daemon off;\nmaster_process off;\n{main}pid {dir}/pid;\nerror_log {dir}/error.log;\nevents {{}}\n\
         http {{\naccess_log off;\n{temporary}server {{\nlisten 127.0.0.1:{port};\n{server}\n}}\n}}\n"
    )
}

/// Returns settings of Apache with these modules. `rest` are more lines.
fn apache_settings(dir: &str, port: &str, modules: &[&str], rest: &str) -> String {
    let modules = ["mpm_prefork", "authz_core"].iter().chain(modules);
    let modules: String = modules
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
    format!(
        "{modules}ServerRoot {dir}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {dir}/pid\n\
         ErrorLog {dir}/error.log\nDefaultRuntimeDir {dir}\n{rest}"
    )
}

#[test]
fn deliveries_pass_through_the_nginx_example() {
    let settings = nginx_settings("DIR", "PORT", "", "EXAMPLE");
    through_the_example("nginx", "nginx-light", "nginx.conf", &settings, &["-c"]);
}

#[test]
fn deliveries_pass_through_the_apache_example() {
    let settings = apache_settings("DIR", "PORT", &["proxy", "proxy_http"], "EXAMPLE");
    through_the_example("apache2", "apache2-bin", "apache.conf", &settings, &["-DFOREGROUND", "-f"]);
}

/// Starts lighttpd, which runs `ingress` by CGI. Returns `None` if lighttpd is not installed.
pub fn lighttpd(sandbox: &Sandbox) -> Option<Server> {
    let lighttpd = program("lighttpd", "lighttpd")?;
    let dir = dir_of(sandbox);
    script(sandbox, dir.path());
    let (port, at) = (free_port(), dir.path().display());
    let conf = dir.path().join("conf");
    let text = format!(
        "server.document-root = \"{at}\"\nserver.bind = \"127.0.0.1\"\nserver.port = {port}\n\
         server.modules = (\"mod_cgi\")\ncgi.assign = (\".cgi\" => \"\")\n"
    );
    fs::write(&conf, text).unwrap();
    let mut command = Command::new(lighttpd);
    command.args(["-D", "-f"]).arg(&conf);
    Some(serve(sandbox, dir, port, "/hook.cgi", [command]))
}

#[test]
fn deliveries_pass_through_lighttpd() {
    let sandbox = started("true").with_real_clock();
    let Some(server) = lighttpd(&sandbox) else { return };
    deliveries_come_through(&sandbox, &server);
}

#[test]
fn deliveries_pass_through_nginx_and_fcgiwrap() {
    let sandbox = started("true").with_real_clock();
    let Some(nginx) = program("nginx", "nginx-light") else { return };
    let Some(fcgiwrap) = program("fcgiwrap", "fcgiwrap") else { return };
    let dir = dir_of(&sandbox);
    let script = script(&sandbox, dir.path());
    let port = free_port();
    let socket = dir.path().join("fcgi");
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    let location = format!(
        "location ~ ^/hooks(/.*)$ {{\nfastcgi_pass unix:{};\n\
         fastcgi_param SCRIPT_FILENAME {};\nfastcgi_param PATH_INFO $1;\n\
         fastcgi_param REQUEST_METHOD $request_method;\nfastcgi_param CONTENT_TYPE $content_type;\n\
         fastcgi_param CONTENT_LENGTH $content_length;\nfastcgi_param REMOTE_ADDR $remote_addr;\n\
         fastcgi_param GATEWAY_INTERFACE CGI/1.1;\n}}",
        socket.display(),
        script.display()
    );
    let conf = dir.path().join("conf");
    let text = nginx_settings(dir.path().to_str().unwrap(), &port.to_string(), user, &location);
    fs::write(&conf, text).unwrap();
    let mut wrap = Command::new(fcgiwrap);
    wrap.arg("-s").arg(format!("unix:{}", socket.display()));
    let mut command = Command::new(nginx);
    command.arg("-c").arg(&conf).arg("-p").arg(dir.path());
    let server = serve(&sandbox, dir, port, "/hooks", [wrap, command]);
    eventually("the socket", || socket.exists().then_some(()));
    deliveries_come_through(&sandbox, &server);
}

/// Apache refuses to serve as root, so Apache and its scripts run as the owner of the state
/// directory.
#[test]
fn deliveries_pass_through_apache() {
    let sandbox = started("true").with_real_clock().of_an_ordinary_user();
    let Some(apache) = program("apache2", "apache2-bin") else { return };
    let dir = dir_of(&sandbox);
    let script = script(&sandbox, dir.path());
    let port = free_port();
    let alias =
        format!("ScriptAlias /hooks {}\n<Location /hooks>\nCGIPassAuth On\n</Location>\n", script.display());
    let (at, conf) = (dir.path().to_str().unwrap(), dir.path().join("conf"));
    fs::write(&conf, apache_settings(at, &port.to_string(), &["alias", "cgi"], &alias)).unwrap();
    let mut command = Command::new(apache);
    command.args(["-DFOREGROUND", "-f"]).arg(&conf);
    sandbox.give_to_owner(dir.path());
    deliveries_come_through(&sandbox, &serve(&sandbox, dir, port, "/hooks", [command]));
}

#[test]
fn deliveries_pass_through_busybox() {
    let sandbox = started("true").with_real_clock();
    let Some(busybox) = program("busybox", "busybox") else { return };
    let dir = dir_of(&sandbox);
    let scripts = dir.path().join("cgi-bin");
    fs::create_dir(&scripts).unwrap();
    script(&sandbox, &scripts);
    let port = free_port();
    let mut command = Command::new(busybox);
    command.args(["httpd", "-f", "-p", &format!("127.0.0.1:{port}"), "-h"]).arg(dir.path());
    deliveries_come_through(&sandbox, &serve(&sandbox, dir, port, "/cgi-bin/hook.cgi", [command]));
}
