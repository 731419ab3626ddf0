//! Real servers, as an ordinary process on a free port. A server that is not installed is left out, and said.

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

/// Path of a program, or `None` if the machine lacks it.
fn program(name: &str, package: &str) -> Option<PathBuf> {
    let found = crate::needs::find(name);
    assert!(found.is_some() || !crate::needs::has(&[name]), "{package}");
    found
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server that goes with the test.
pub struct Server {
    pub children: Vec<Child>,
    pub port: u16,
    /// What stands before the path of a request.
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
            // Apache ends its processes when it is told to end, and leaves them when it is killed.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
            let _ = child.wait();
        }
    }
}

/// Starts what a server consists of, and waits until it can be reached.
fn serve(
    sandbox: &Sandbox,
    dir: TempDir,
    port: u16,
    path: &'static str,
    commands: impl IntoIterator<Item = Command>,
) -> Server {
    let start = |mut command: Command| {
        sandbox.run_as_owner(&mut command);
        // Apache ends its process group, in which the servers of other tests would be.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let server = Server { children: commands.into_iter().map(start).collect(), port, path, _dir: dir };
    eventually("the server", || TcpStream::connect(("127.0.0.1", port)).ok());
    server
}

/// A directory for what a server needs, which belongs to whoever runs it.
fn dir_of(sandbox: &Sandbox) -> TempDir {
    tempfile::tempdir_in(sandbox.home()).unwrap()
}

/// A script that a server runs, with the state directory of a sandbox.
fn script(sandbox: &Sandbox, dir: &Path) -> PathBuf {
    let path = dir.join("hook.cgi");
    let program = sandbox.dormouse();
    let text = format!("#!/bin/sh\nexec {} -C {} ingress\n", program.display(), sandbox.project().display());
    write_program(&path, &text);
    path
}

/// What curl gets: the status and the body.
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

/// Whatever the server: what curl sends comes through, once, and nothing else does.
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
fn through_a_socket_of_systemd() {
    let sandbox = started("true").with_real_clock();
    let Some(activate) = program("systemd-socket-activate", "systemd") else { return };
    let port = free_port();
    let socket = socket(&sandbox, &activate, port);
    deliveries_come_through(&sandbox, &serve(&sandbox, dir_of(&sandbox), port, "", [socket]));
}

/// A socket of systemd on this port, each connection of which `ingress` answers.
fn socket(sandbox: &Sandbox, activate: &Path, port: u16) -> Command {
    let mut command = Command::new(activate);
    command.args(["--accept", "--inetd", "--listen", &format!("127.0.0.1:{port}"), "--"]);
    command.arg(sandbox.dormouse()).args(["-C", sandbox.project().to_str().unwrap(), "ingress"]);
    command
}

/// A web server with the settings of an example passes deliveries on to a socket of systemd. In `settings`, `DIR` is a
/// directory of the server, `PORT` its port, and `EXAMPLE` the text of the example.
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
fn lighttpd_passes_deliveries_on() {
    let settings = "server.document-root = \"DIR\"\nserver.bind = \"127.0.0.1\"\nserver.port = PORT\nEXAMPLE";
    through_the_example("lighttpd", "lighttpd", "lighttpd.conf", settings, &["-D", "-f"]);
}

#[test]
fn nginx_passes_deliveries_on() {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|kind| format!("{kind}_temp_path DIR/{kind};\n")).concat();
    let settings = format!(
        "daemon off;\nmaster_process off;\npid DIR/pid;\nerror_log DIR/error.log;\nevents {{}}\n\
         http {{\naccess_log off;\n{temporary}server {{\nlisten 127.0.0.1:PORT;\nEXAMPLE\n}}\n}}\n"
    );
    through_the_example("nginx", "nginx-light", "nginx.conf", &settings, &["-c"]);
}

#[test]
fn apache_passes_deliveries_on() {
    let modules = ["mpm_prefork", "authz_core", "proxy", "proxy_http"];
    let modules =
        modules.map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"));
    let settings = modules.concat()
        + "ServerRoot DIR\nServerName localhost\nListen 127.0.0.1:PORT\nPidFile DIR/pid\n\
           ErrorLog DIR/error.log\nDefaultRuntimeDir DIR\nEXAMPLE";
    through_the_example("apache2", "apache2-bin", "apache.conf", &settings, &["-DFOREGROUND", "-f"]);
}

/// lighttpd, with what it serves.
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
fn through_lighttpd() {
    let sandbox = started("true").with_real_clock();
    let Some(server) = lighttpd(&sandbox) else { return };
    deliveries_come_through(&sandbox, &server);
}

#[test]
fn through_nginx_and_fcgiwrap() {
    let sandbox = started("true").with_real_clock();
    let Some(nginx) = program("nginx", "nginx-light") else { return };
    let Some(fcgiwrap) = program("fcgiwrap", "fcgiwrap") else { return };
    let dir = dir_of(&sandbox);
    let script = script(&sandbox, dir.path());
    let (port, at) = (free_port(), dir.path().display());
    let socket = dir.path().join("fcgi");
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {at}/{kind};\n"))
        .concat();
    let text = format!(
        "daemon off;\nmaster_process off;\n{user}pid {at}/pid;\nerror_log {at}/error.log;\nevents {{}}\n\
         http {{\naccess_log off;\n{temporary}server {{\nlisten 127.0.0.1:{port};\n\
         location ~ ^/hooks(/.*)$ {{\nfastcgi_pass unix:{};\n\
         fastcgi_param SCRIPT_FILENAME {};\nfastcgi_param PATH_INFO $1;\n\
         fastcgi_param REQUEST_METHOD $request_method;\nfastcgi_param CONTENT_TYPE $content_type;\n\
         fastcgi_param CONTENT_LENGTH $content_length;\nfastcgi_param REMOTE_ADDR $remote_addr;\n\
         fastcgi_param GATEWAY_INTERFACE CGI/1.1;\n}}\n}}\n}}\n",
        socket.display(),
        script.display()
    );
    let conf = dir.path().join("conf");
    fs::write(&conf, text).unwrap();
    let mut wrap = Command::new(fcgiwrap);
    wrap.arg("-s").arg(format!("unix:{}", socket.display()));
    let mut command = Command::new(nginx);
    command.arg("-c").arg(&conf).arg("-p").arg(dir.path());
    let server = serve(&sandbox, dir, port, "/hooks", [wrap, command]);
    eventually("the socket", || socket.exists().then_some(()));
    deliveries_come_through(&sandbox, &server);
}

/// Apache serves nothing as root: it and its scripts run as the owner of the state directory.
#[test]
fn through_apache() {
    let sandbox = started("true").with_real_clock().of_an_ordinary_user();
    let Some(apache) = program("apache2", "apache2-bin") else { return };
    let dir = dir_of(&sandbox);
    let script = script(&sandbox, dir.path());
    let (port, at) = (free_port(), dir.path().display());
    let modules: String = ["mpm_prefork", "authz_core", "alias", "cgi"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    let text = format!(
        "{modules}ServerRoot {at}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {at}/pid\n\
         ErrorLog {at}/error.log\nDefaultRuntimeDir {at}\nScriptAlias /hooks {}\n\
         <Location /hooks>\nCGIPassAuth On\n</Location>\n",
        script.display()
    );
    let conf = dir.path().join("conf");
    fs::write(&conf, text).unwrap();
    let mut command = Command::new(apache);
    command.args(["-DFOREGROUND", "-f"]).arg(&conf);
    sandbox.give_to_owner(dir.path());
    deliveries_come_through(&sandbox, &serve(&sandbox, dir, port, "/hooks", [command]));
}

#[test]
fn through_busybox() {
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
