//! TLS that is opened, secrets that are put in outside, and budgets, as real clients behind the wall meet them. What the proxy
//! makes of odd requests is tested where the proxy is.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::probe::{Wall, interpreter, is_root, run, text, walled_with};
use crate::stage::{Ended, Stage, binary};
use crate::stand_in::{make_package, make_repository, stand_in};
use crate::tls_origin::{Answer, Asked, Authority, TlsOrigin};

pub(crate) const SECRET: &str = "s3cret-0123456789-of-the-host";

/// A stage whose project has the policy `net`, and a host that trusts the authority of the test.
pub(crate) struct Scene {
    pub(crate) stage: Stage,
    trusted: PathBuf,
}

impl Scene {
    pub(crate) fn new(authority: &Authority, net: &str) -> Option<Self> {
        let stage = walled_with(&format!("net: {{ mode: allowlist, {net} }}\n"))?;
        let trusted = authority.write(stage.path());
        Some(Self { stage, trusted })
    }

    /// The user's own policy file.
    pub(crate) fn user_says(&self, text: &str) {
        let folder = self.stage.path().join("home/.config/ringfence");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("policy.yaml"), format!("version: 1\n{text}\n")).unwrap();
    }

    /// The file of authorities that its host trusts.
    pub(crate) fn trusted(&self) -> &Path {
        &self.trusted
    }

    fn run_with(&self, flags: &[&str], argv: &[&str]) -> Ended {
        run(&self.stage, Wall::Native, flags, argv).env("SSL_CERT_FILE", &self.trusted).env("HOST_KEY", SECRET).run()
    }

    pub(crate) fn run(&self, argv: &[&str]) -> Ended {
        self.run_with(&[], argv)
    }

    pub(crate) fn python(&self, code: &str, arguments: &[&str]) -> Option<Ended> {
        let python = interpreter()?;
        Some(self.run(&[&[python.to_str().unwrap(), "-c", code], arguments].concat()))
    }

    fn outcome(&self, code: &str, arguments: &[&str]) -> Option<serde_json::Value> {
        let python = interpreter()?;
        Some(self.run_with(&["--json"], &[&[python.to_str().unwrap(), "-c", code], arguments].concat()).json())
    }
}

/// Each argument is a method and a URL, or a header that goes with all that follow; says what came.
pub(crate) const FETCH: &str = "
import sys, urllib.request, urllib.error
headers = {}
for word in sys.argv[1:]:
    if ': ' in word: headers.update([word.split(': ', 1)]); continue
    method, url = word.split(' ')
    try:
        request = urllib.request.Request(url, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=20) as answer: print(answer.status, answer.read().decode().strip())
    except urllib.error.HTTPError as error: print(error.code, error.read().decode().strip())
    except OSError as error: print('none', error)
";

pub(crate) fn hello(_: &Asked) -> Answer {
    Answer::ok("hello\n")
}

fn paths(origin: &TlsOrigin) -> Vec<String> {
    origin.asked().iter().map(|asked| format!("{} {}", asked.method, asked.path)).collect()
}

/// Whether a program is there; says so where it is not.
pub(crate) fn there(program: &str) -> bool {
    let found = std::env::split_paths("/usr/local/bin:/usr/bin:/bin").any(|folder| folder.join(program).is_file());
    if !found {
        eprintln!("SKIPPED: there is no {program}");
    }
    found
}

#[test]
fn methods_and_paths_hold_over_https_where_tls_is_inspected_and_deny_it_where_not() {
    let authority = Authority::new();
    let origin = authority.origin("127.0.0.1", hello);
    let rule = |more: &str| {
        format!("allow: [{{ host: 127.0.0.1, ports: [{}], methods: [GET], paths: [/repos/**]{more} }}]", origin.port)
    };
    let Some(scene) = Scene::new(&authority, &rule(", inspect: true")) else { return };
    let wanted = ["GET /repos/a", "POST /repos/a", "GET /user", "GET /repos/../user"].map(|what| {
        let (method, path) = what.split_once(' ').unwrap();
        format!("{method} {}", origin.url(path))
    });
    let arguments: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let Some(ended) = scene.python(FETCH, &arguments) else { return };
    let text = ended.text();
    let starts: Vec<&str> = text.lines().filter(|line| line.starts_with(['2', '4', 'n'])).collect();
    assert_eq!(starts.len(), 4, "{ended:?}");
    assert_eq!(starts[0], "200 hello");
    assert!(starts[1..].iter().all(|line| line.starts_with("403 Ringfence denied")), "{text}");
    assert_eq!(paths(&origin), ["GET /repos/a"]);
    let Some(closed) = Scene::new(&authority, &rule("")) else { return };
    let Some(ended) = closed.python(FETCH, &arguments[..1]) else { return };
    assert!(ended.text().starts_with("none") && ended.text().contains("403"), "{ended:?}");
    assert_eq!(paths(&origin).len(), 1);
}

#[test]
fn an_origin_that_nobody_vouches_for_is_not_vouched_for_by_us() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (known, unknown) = (ours.origin("127.0.0.1", hello), theirs.origin("127.0.0.1", hello));
    let net = format!("allow: [{{ host: 127.0.0.1, ports: [{}, {}], inspect: true }}]", known.port, unknown.port);
    let Some(scene) = Scene::new(&ours, &net) else { return };
    let wanted = [format!("GET {}", known.url("/")), format!("GET {}", unknown.url("/"))];
    let Some(ended) = scene.python(FETCH, &[&wanted[0], &wanted[1]]) else { return };
    assert!(ended.text().starts_with("200 hello\n502 "), "{ended:?}");
    assert!(unknown.asked().is_empty());
}

#[test]
fn programs_that_heed_no_variable_find_the_authority_where_the_system_has_its_own_and_no_key_is_inside() {
    let authority = Authority::new();
    let origin = authority.origin("127.0.0.1", hello);
    let net = format!("allow: [{{ host: 127.0.0.1, ports: [{}], inspect: true }}]", origin.port);
    let Some(scene) = Scene::new(&authority, &net) else { return };
    let ended = scene.run(&[
        "sh",
        "-c",
        "cat /run/ringfence/ca.pem; for file in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/java/cacerts; do \
         [ -e $file ] && { cmp -s $file /run/ringfence/ca.pem || cmp -s $file /run/ringfence/java.jks || echo OTHER $file; }; done; \
         grep -rl PRIVATE /run/ringfence; echo x 2> /dev/null >> /run/ringfence/ca.pem && echo WRITTEN; \
         echo x 2> /dev/null >> /etc/ssl/certs/ca-certificates.crt && echo WRITTEN",
    ]);
    let text = ended.text();
    assert_eq!(text.matches("BEGIN CERTIFICATE").count(), 2, "the test's authority and the sandbox's: {ended:?}");
    assert!(!text.contains("OTHER") && !text.contains("PRIVATE") && !text.contains("/run/ringfence"), "{text}");
    assert!(!text.contains("WRITTEN"), "{text}");
    let outside = std::fs::read_to_string("/etc/ssl/certs/ca-certificates.crt").unwrap_or_default();
    let own = text.split_inclusive("-----END CERTIFICATE-----\n").next().unwrap();
    assert!(!outside.contains(own), "the host's own file was changed");
    // Without inspection nothing of it is there.
    let Some(plain) = Scene::new(&authority, "allow: [a.test]") else { return };
    let ended = plain.run(&["sh", "-c", "ls /run/ringfence 2> /dev/null; echo [$SSL_CERT_FILE$NODE_OPTIONS]"]);
    assert_eq!(ended.text(), "[]\n", "{ended:?}");
}

/// A scene whose only host is a stand-in for a registry.
fn registry() -> Option<(Scene, TlsOrigin)> {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap().keep();
    std::fs::create_dir(folder.join("files")).unwrap();
    let origin = authority.origin("127.0.0.1", stand_in(&folder));
    let net = format!("allow: [{{ host: 127.0.0.1, ports: [{}], methods: [GET, HEAD], inspect: true }}]", origin.port);
    let scene = Scene::new(&authority, &net)?;
    std::fs::write(scene.stage.path().join("served"), folder.to_str().unwrap()).unwrap();
    Some((scene, origin))
}

impl Scene {
    fn served(&self) -> PathBuf {
        std::fs::read_to_string(self.stage.path().join("served")).unwrap().into()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Ok(folder) = std::fs::read_to_string(self.stage.path().join("served")) {
            std::fs::remove_dir_all(folder).ok();
        }
    }
}

#[test]
fn curl_works_unchanged_and_what_is_denied_says_what_to_do() {
    let Some((scene, origin)) = registry() else { return };
    if !there("curl") {
        return;
    }
    let ended = scene.run(&["curl", "-sS", &origin.url("/demo")]);
    assert!(ended.text().contains("1.2.3"), "{ended:?}");
    let denied = scene.run(&["curl", "-sS", "-X", "PUT", &origin.url("/demo")]);
    assert!(denied.text().contains("Ringfence denied") && denied.text().contains("GET"), "{denied:?}");
    let elsewhere = scene.run(&["curl", "-sS", "https://evil.test/"]);
    assert!(elsewhere.text().is_empty() && paths(&origin).len() == 1, "{elsewhere:?}");
    // The twin: who trusts only those that the origin is certified by sees that somebody is in between.
    scene.stage.write("origins.pem", std::fs::read(&scene.trusted).unwrap());
    let script = "unset CURL_CA_BUNDLE SSL_CERT_FILE; curl -sS --cacert origins.pem \"$1\" 2> /dev/null; echo $?";
    let ended = scene.run(&["sh", "-c", script, "sh", &origin.url("/demo")]);
    assert_eq!(ended.text(), "60\n", "the probe proves nothing: {ended:?}");
}

#[test]
fn git_clones_unchanged() {
    let Some((scene, origin)) = registry() else { return };
    if !there("git") {
        return;
    }
    make_repository(&scene.served());
    let url = origin.url("/repo.git");
    let ended = scene.run(&["sh", "-c", "git clone -q \"$1\" /tmp/clone && cat /tmp/clone/file", "sh", &url]);
    assert_eq!(ended.text(), "one\n", "{ended:?}");
}

pub(crate) fn has_pip(python: &str) -> bool {
    let has = Command::new(python).args(["-m", "pip", "--version"]).output().is_ok_and(|it| it.status.success());
    if !has {
        eprintln!("SKIPPED: there is no pip");
    }
    has
}

#[test]
fn pip_downloads_unchanged() {
    let Some((scene, origin)) = registry() else { return };
    let Some(python) = interpreter() else { return };
    let python = python.to_str().unwrap();
    if !has_pip(python) {
        return;
    }
    make_package(python, &scene.served());
    let index = origin.url("/simple/");
    let script = "\"$1\" -m pip -q --disable-pip-version-check download --no-deps -d /tmp/got --index-url \"$2\" demo && ls /tmp/got";
    let ended = scene.run(&["sh", "-c", script, "sh", python, &index]);
    assert_eq!(ended.text(), "demo-1.0-py3-none-any.whl\n", "{ended:?}");
}

/// Runs `argv` behind the wall on a host whose file of hosts is `hosts`. `None`, loudly, where that cannot be had.
pub(crate) fn run_named(scene: &Scene, hosts: &str, argv: &[&str]) -> Option<String> {
    let ended = run_named_with(scene, hosts, &["-q"], argv)?;
    Some(ended.text() + &ended.stderr)
}

/// Likewise, with flags of our own.
pub(crate) fn run_named_with(scene: &Scene, hosts: &str, flags: &[&str], argv: &[&str]) -> Option<Ended> {
    let file = scene.stage.path().join("hosts");
    std::fs::write(&file, hosts).unwrap();
    // A file system view of its own, for a user with the same id.
    let own: &[&str] = if is_root() { &["--mount"] } else { &["--user", "--map-current-user", "--mount"] };
    let script = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
    let begin = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(own).args(["sh", "-c", script, "sh", text(&file)]).args(words);
        command
    };
    if !begin(&["true"]).output().is_ok_and(|it| it.status.success()) {
        eprintln!("SKIPPED: names of this host cannot be changed for one program");
        return None;
    }
    let binary = binary();
    let run = [&[binary.to_str().unwrap(), "run", "--backend", "native"], flags, &["--"], argv].concat();
    let mut command = begin(&run);
    command.env_clear().current_dir(scene.stage.work()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    command.env("HOME", scene.stage.path().join("home")).env("TMPDIR", scene.stage.path().join("tmp"));
    Some(command.env("SSL_CERT_FILE", &scene.trusted).env("LANG", "C.UTF-8").output().unwrap().into())
}

#[test]
fn npm_and_node_work_unchanged() {
    if !there("node") || !there("npm") {
        return;
    }
    let (authority, name) = (Authority::new(), "registry.example.test");
    let folder = tempfile::tempdir().unwrap();
    let origin = authority.named(name, stand_in(folder.path()));
    let net = format!(
        "localhost: [{0}], allow: [{{ host: {name}, ports: [{0}], methods: [GET], inspect: true }}]",
        origin.port
    );
    let Some(scene) = Scene::new(&authority, &net) else { return };
    let hosts = format!("127.0.0.1 localhost {name} other.example.test\n");
    let view = ["npm", "view", "demo", "version", "--fetch-retries=0", "--registry", &origin.url("/")];
    let Some(viewed) = run_named(&scene, &hosts, &view) else { return };
    assert_eq!(viewed, "1.2.3\n");
    let elsewhere = format!("https://other.example.test:{}/", origin.port);
    let view = ["npm", "view", "demo", "version", "--fetch-retries=0", "--registry", &elsewhere];
    assert!(run_named(&scene, &hosts, &view).is_some_and(|text| text.contains("npm error")));
    // Older ones heed no variable for proxies, so this one asks for its tunnel itself; whom it trusts is its own affair.
    let code = "const [,host,port]=process.argv; const http=require('http'), https=require('https');
http.request({host:'127.0.0.1',port:3128,method:'CONNECT',path:host+':'+port,headers:{host:host+':'+port}}).on('connect',(answer,socket)=>{
  https.get({host,port,path:'/demo',socket,agent:false},(answer)=>{answer.resume();console.log(answer.statusCode)})
    .on('error',(error)=>console.log(error.code))}).end()";
    let port = origin.port.to_string();
    assert_eq!(run_named(&scene, &hosts, &["node", "-e", code, name, &port]).as_deref(), Some("200\n"));
    let bare = ["sh", "-c", "unset NODE_OPTIONS; exec node -e \"$1\" \"$2\" \"$3\"", "sh", code, name, &port];
    let twin = run_named(&scene, &hosts, &bare).unwrap();
    assert!(!twin.contains("200"), "the probe proves nothing: {twin}");
}

/// A host that has a secret for one origin, and another origin beside it.
struct Bound {
    scene: Scene,
    origin: TlsOrigin,
    other: TlsOrigin,
}

const USERS: &str = "credentials: { key: { from: { env: HOST_KEY }, hosts: [127.0.0.1], env: API_TOKEN } }";

fn bound() -> Option<Bound> {
    let authority = Authority::new();
    let other = authority.origin("127.0.0.2", hello);
    let elsewhere = other.url("/landed");
    let origin = authority.origin("127.0.0.1", move |asked: &Asked| match asked.path.as_str() {
        "/echo" => Answer::ok(format!("you sent {}\n", asked.header("authorization").unwrap_or("nothing"))),
        "/away" => Answer { status: 302, headers: vec![("Location", elsewhere.clone())], body: Vec::new() },
        _ => Answer::ok("hello\n"),
    });
    let net = format!(
        "allow: [{{ host: 127.0.0.1, ports: [{}], credential: key }}, {{ host: 127.0.0.2, ports: [{}], inspect: true }}]",
        origin.port, other.port
    );
    let scene = Scene::new(&authority, &net)?;
    scene.user_says(USERS);
    Some(Bound { scene, origin, other })
}

#[test]
fn s01_a_secret_is_put_in_outside_and_is_nowhere_inside_nor_in_what_is_written() {
    let Some(Bound { scene, origin, .. }) = bound() else { return };
    let code = format!("import os; print(os.environ['API_TOKEN']); print(dict(os.environ))\n{FETCH}");
    let Some(python) = interpreter() else { return };
    let token = "Authorization: Bearer ringfence.key.placeholder";
    let wanted = [format!("GET {}", origin.url("/one")), format!("GET {}", origin.url("/echo"))];
    let argv = [python.to_str().unwrap(), "-c", &code, &wanted[0], token, &wanted[1]];
    let ended = scene.run_with(&["--json"], &argv);
    let outcome = ended.json();
    let stdout = outcome["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("ringfence.key.placeholder\n") && stdout.contains("200 hello"), "{outcome:#}");
    assert!(stdout.contains("200 you sent Bearer *"), "the echo is masked: {stdout}");
    let sent: Vec<Option<String>> =
        origin.asked().iter().map(|asked| asked.header("authorization").map(str::to_owned)).collect();
    assert_eq!(sent, vec![Some(format!("Bearer {SECRET}")); 2], "with the placeholder and without one");
    let ledger = std::fs::read_to_string(scene.stage.ledger()).unwrap();
    for (what, text) in [("outcome", outcome.to_string()), ("ledger", ledger), ("talk", format!("{ended:?}"))] {
        assert!(!text.contains(SECRET), "the secret is in the {what}");
    }
}

#[test]
fn a_foreign_key_is_refused_where_ours_is_bound_and_no_redirect_carries_ours_away() {
    let Some(Bound { scene, origin, other }) = bound() else { return };
    let foreign = "Authorization: Bearer another-key-0123456789";
    let (here, there_too) = (format!("GET {}", origin.url("/one")), format!("GET {}", other.url("/one")));
    let Some(ended) = scene.python(FETCH, &[foreign, &here, &there_too]) else { return };
    assert!(ended.text().starts_with("403 Ringfence denied") && ended.text().ends_with("200 hello\n"), "{ended:?}");
    assert!(origin.asked().is_empty());
    assert_eq!(
        other.asked()[0].header("authorization"),
        Some("Bearer another-key-0123456789"),
        "the probe proves nothing"
    );
    // One that follows by itself, without a key of its own: it arrives, and nothing with it.
    let away = format!("GET {}", origin.url("/away"));
    let Some(ended) = scene.python(FETCH, &[&away]) else { return };
    assert_eq!(ended.text(), "200 hello\n", "{ended:?}");
    let landed = other.asked().pop().unwrap();
    assert_eq!((landed.path.as_str(), landed.header("authorization")), ("/landed", None));
    // One that takes the placeholder along is stopped on the way.
    let Some(ended) = scene.python(FETCH, &["Authorization: Bearer ringfence.key.placeholder", &away]) else { return };
    assert!(ended.text().starts_with("403 Ringfence denied"), "{ended:?}");
    assert_eq!(other.asked().len(), 2);
    assert_eq!(origin.asked().iter().filter(|asked| asked.path == "/away").count(), 2);
}

#[test]
fn a_project_can_neither_define_a_credential_nor_send_one_elsewhere_and_a_missing_secret_refuses_the_run() {
    let Some(Bound { scene, origin, other }) = bound() else { return };
    let url = format!("GET {}", origin.url("/one"));
    let rule = format!(
        "net: {{ mode: allowlist, allow: [{{ host: 127.0.0.1, ports: [{}], credential: key }}] }}",
        origin.port
    );
    let started = scene.stage.path().join("started");
    let command = format!("touch {}; echo {SECRET}", started.display());
    let own = format!(
        "version: 1\n{rule}\ncredentials: {{ key: {{ from: {{ command: [sh, -c, \"{command}\"] }}, hosts: [127.0.0.1] }} }}\n"
    );
    scene.stage.write("sandbox.policy.yaml", own);
    let Some(refused) = scene.python(FETCH, &[&url]) else { return };
    assert!(format!("{refused:?}").contains("policy::credential-layer"), "{refused:?}");
    assert!(!started.exists() && origin.asked().is_empty());
    let elsewhere = format!(
        "version: 1\nnet: {{ mode: allowlist, allow: [{{ host: 127.0.0.2, ports: [{}], credential: key }}] }}\n",
        other.port
    );
    scene.stage.write("sandbox.policy.yaml", elsewhere);
    let Some(refused) = scene.python(FETCH, &[&format!("GET {}", other.url("/one"))]) else { return };
    assert!(format!("{refused:?}").contains("policy::credential-host"), "{refused:?}");
    assert!(other.asked().is_empty());
    // The twin: the same command in the user's own file is run, and the rule works.
    scene.stage.write("sandbox.policy.yaml", format!("version: 1\n{rule}\n"));
    scene.user_says(&format!(
        "credentials: {{ key: {{ from: {{ command: [sh, -c, \"{command}\"] }}, hosts: [127.0.0.1] }} }}"
    ));
    let Some(ended) = scene.python(FETCH, &[&url]) else { return };
    assert_eq!(ended.text(), "200 hello\n", "{ended:?}");
    assert!(started.exists() && origin.asked()[0].header("authorization") == Some(&format!("Bearer {SECRET}")));
    scene.user_says("credentials: { key: { from: { env: NOT_SET_ANYWHERE }, hosts: [127.0.0.1] } }");
    let Some(refused) = scene.python(&format!("open('ran', 'w')\n{FETCH}"), &[&url]) else { return };
    assert!(format!("{refused:?}").contains("set the variable NOT_SET_ANYWHERE"), "{refused:?}");
    assert!(refused.text().is_empty() && origin.asked().len() == 1);
}

#[test]
fn a_budget_that_is_used_up_denies_and_is_a_violation() {
    let authority = Authority::new();
    let large = authority.origin("127.0.0.1", |_: &Asked| Answer::ok(vec![b'x'; 300_000]));
    let counted = authority.origin("127.0.0.2", hello);
    let net = format!(
        "budget: {{ requests: 5 }}, allow: [{{ host: 127.0.0.1, ports: [{}], inspect: true, budget: {{ bytes: 100KB }} }}, \
         {{ host: 127.0.0.2, ports: [{}], inspect: true, budget: {{ requests: 2 }} }}]",
        large.port, counted.port
    );
    let Some(scene) = Scene::new(&authority, &net) else { return };
    let get = format!("GET {}", counted.url("/"));
    let Some(outcome) = scene.outcome(FETCH, &[&get, &get, &get]) else { return };
    let stdout = outcome["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("200 hello\n200 hello\n403 Ringfence denied"), "{stdout}");
    assert!(stdout.contains("budget of 2 requests for this host"), "{stdout}");
    assert_eq!(counted.asked().len(), 2);
    assert!(outcome["violations"].to_string().contains("net.budget"), "{:#}", outcome["violations"]);
    // What is too large is cut in the middle, and told as well.
    let cut = "import sys, urllib.request\ntry: print(len(urllib.request.urlopen(sys.argv[1], timeout=20).read()))\nexcept Exception as error: print(type(error).__name__)";
    let Some(outcome) = scene.outcome(cut, &[&large.url("/")]) else { return };
    assert!(!outcome["stdout"].as_str().unwrap().contains("300000"), "{outcome:#}");
    assert!(outcome["violations"].to_string().contains("net.budget"), "{outcome:#}");
    // And all hosts together have theirs.
    scene.stage.write(
        "sandbox.policy.yaml",
        format!("version: 1\nnet: {{ mode: allowlist, {} }}\n", net.replace("requests: 2", "requests: 9")),
    );
    let Some(ended) = scene.python(FETCH, &[get.as_str(); 6]) else { return };
    assert_eq!(ended.text().matches("200 hello").count(), 5, "{ended:?}");
    assert!(ended.text().contains("budget of 5 requests for this run"), "{ended:?}");
}

#[test]
fn the_runs_of_a_session_use_its_credentials() {
    let Some(Bound { scene, origin, .. }) = bound() else { return };
    let (Some(python), name) = (interpreter(), "keys") else { return };
    let python = python.to_str().unwrap();
    let call = |arguments: &[&str]| {
        scene.stage.ringfence(arguments).env("SSL_CERT_FILE", &scene.trusted).env("HOST_KEY", SECRET).run()
    };
    call(&["session", "start", name]).expect(0, &[]);
    let url = format!("GET {}", origin.url("/one"));
    let code = format!("import os; print(os.environ['API_TOKEN'])\n{FETCH}");
    let ended = call(&["session", "exec", "-q", name, "--", python, "-c", &code, &url]);
    call(&["session", "stop", name]);
    assert_eq!(ended.text(), "ringfence.key.placeholder\n200 hello\n", "{ended:?}");
    assert_eq!(origin.asked()[0].header("authorization"), Some(&*format!("Bearer {SECRET}")));
}

#[test]
fn no_variable_that_a_secret_comes_from_is_passed_whatever_a_call_leaves_out() {
    let rule = "allow: [{ host: a.test, credential: key }, pypi.org]";
    let Some(scene) = Scene::new(&Authority::new(), rule) else { return };
    scene.user_says(
        "credentials: { key: { from: { env: HOST_KEY }, hosts: [a.test], env: HOST_KEY } }\n\
         proc: { env: { pass: [HOST_KEY, OTHER, RINGFENCE_*] } }",
    );
    for flags in [&[][..], &["--net", "none"], &["--allow-host", "pypi.org"]] {
        let ended = run(&scene.stage, Wall::Native, flags, &["env"])
            .env("HOST_KEY", SECRET)
            .env("OTHER", "the twin")
            .env("RINGFENCE_UPSTREAM_CREDENTIAL", "me:hunter2")
            .run();
        let text = ended.text();
        assert!(text.contains("OTHER=the twin"), "{ended:?}");
        assert!(!text.contains(SECRET) && !text.contains("hunter2"), "{flags:?}: {ended:?}");
    }
}
