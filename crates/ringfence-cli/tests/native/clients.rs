//! Clients of other languages behind the wall, unchanged and over TLS that is opened. They heed no variable for proxies: names lead them
//! to us. What is not there is skipped, loudly.

use std::path::Path;

use crate::inspected::{Scene, has_pip, hello, run_named, run_named_with, there};
use crate::probe::interpreter;
use crate::stage::Stage;
use crate::stand_in::{make_package, make_repository, stand_in};
use crate::tls_origin::{Authority, TlsOrigin};

const NAME: &str = "registry.example.test";
const GIT: &str = "git.example.test";
const OTHER: &str = "other.example.test";

/// What a client is to say of three URLs: one that is allowed, one whose path is not, and one whose host is not.
struct Wanted {
    scene: Scene,
    origin: TlsOrigin,
    urls: [String; 3],
}

fn wanted() -> Option<Wanted> {
    let authority = Authority::new();
    let origin = authority.named(NAME, hello);
    let net = format!(
        "localhost: [{0}], allow: [{{ host: {NAME}, ports: [{0}], methods: [GET], paths: [/demo], inspect: true }}]",
        origin.port
    );
    let scene = Scene::new(&authority, &net)?;
    let urls = [origin.url("/demo"), origin.url("/else"), format!("https://{OTHER}:{}/demo", origin.port)];
    Some(Wanted { scene, origin, urls })
}

impl Wanted {
    /// Runs `argv` with the three URLs behind the wall. It writes a status for each, or `none`.
    fn check(&self, argv: &[&str]) {
        let hosts = format!("127.0.0.1 localhost {NAME} {OTHER}\n");
        let urls = self.urls.each_ref().map(String::as_str);
        let Some(said) = run_named(&self.scene, &hosts, &[argv, &urls].concat()) else { return };
        assert_eq!(said, "200\n403\nnone\n");
        let paths: Vec<String> = self.origin.asked().into_iter().map(|asked| asked.path).collect();
        assert_eq!(paths, ["/demo"]);
    }

    fn write(&self, name: &str, text: &str) {
        self.scene.stage.write(name, text);
    }
}

#[test]
fn node_fetches_unchanged() {
    if !there("node") {
        return;
    }
    let Some(wanted) = wanted() else { return };
    let code = "(async () => { for (const url of process.argv.slice(1))
        console.log(await fetch(url).then(answer => answer.status, () => 'none')) })()";
    wanted.check(&["node", "-e", code]);
}

const FETCH_IN_JAVA: &str = "import java.net.URI;
import java.net.http.*;
public class Fetch {
    public static void main(String[] urls) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (String url : urls) {
            try {
                HttpRequest request = HttpRequest.newBuilder(URI.create(url)).build();
                System.out.println(client.send(request, HttpResponse.BodyHandlers.ofString()).statusCode());
            } catch (java.io.IOException error) { System.out.println(\"none\"); }
        }
        System.exit(0);
    }
}
";

#[test]
fn java_fetches_unchanged() {
    if !there("java") || !there("javac") {
        return;
    }
    let Some(wanted) = wanted() else { return };
    wanted.write("Fetch.java", FETCH_IN_JAVA);
    wanted.check(&["java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "Fetch.java"]);
}

const FETCH_IN_GO: &str = "package main

import (
\t\"fmt\"
\t\"net/http\"
\t\"os\"
)

func main() {
\tfor _, url := range os.Args[1:] {
\t\tif answer, err := http.Get(url); err == nil {
\t\t\tfmt.Println(answer.StatusCode)
\t\t} else {
\t\t\tfmt.Println(\"none\")
\t\t}
\t}
}
";

/// Makes `./fetch` of Go in the workspace of `stage`; false, loudly, where there is no Go.
///
/// Made outside: what is shown is what the program does, and not its compiler. Whether with C or without is the compiler's choice: Debian's
/// has its library made with it, and makes all of that anew otherwise, which takes ten times as long.
fn made_of_go(stage: &Stage) -> bool {
    // Where Go is unpacked by hand, too.
    let by_hand = Path::new("/usr/local/go/bin/go");
    if !by_hand.is_file() && !there("go") {
        return false;
    }
    let go = if by_hand.is_file() { "/usr/local/go/bin/go" } else { "go" };
    stage.write("fetch.go", FETCH_IN_GO);
    let made = std::process::Command::new(go)
        .args(["build", "-o", "fetch", "fetch.go"])
        .current_dir(stage.work())
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "off")
        .env("GOCACHE", stage.path().join("gocache"))
        .status();
    assert!(made.is_ok_and(|made| made.success()));
    true
}

#[test]
fn go_fetches_unchanged() {
    let Some(wanted) = wanted() else { return };
    if made_of_go(&wanted.scene.stage) {
        wanted.check(&["./fetch"]);
    }
}

/// Each client by its name, and what it is to say of `$REGISTRY` or `$GIT`: a status, a version, a file.
const CLIENTS: [(&str, &str, &str); 8] = [
    (
        "pip",
        "python3 -m pip -q --disable-pip-version-check --retries 0 download --no-deps -d $TO --index-url $REGISTRY/simple/ demo && ls $TO",
        "demo-1.0-py3-none-any.whl",
    ),
    ("npm", "npm view demo version --fetch-retries=0 --registry $REGISTRY/", "1.2.3"),
    ("git", "git clone -q $GIT/repo.git $TO && cat $TO/file", "one"),
    ("curl", "curl -sS -o $TO -w '%{http_code}' $REGISTRY/demo", "200"),
    (
        "node",
        "node -e \"fetch('$REGISTRY/demo').then(answer => console.log(answer.status), () => process.exit(1))\"",
        "200",
    ),
    (
        "python",
        "python3 -c \"import urllib.request; print(urllib.request.urlopen('$REGISTRY/demo', timeout=20).status)\"",
        "200",
    ),
    ("go", "./fetch $REGISTRY/demo | grep -v none", "200"),
    ("java", "java -Xmx64m -XX:TieredStopAtLevel=1 Fetch.java $REGISTRY/demo | grep -v none", "200"),
];

/// Says of each client that is here what it said, or that it failed.
fn script(clients: &[&(&str, &str, &str)], registry: &str, git: &str) -> String {
    let mut script = format!("REGISTRY={registry} GIT={git}\n");
    for (name, line, _) in clients {
        script +=
            &format!("TO=/tmp/{name}-$$; if said=$({line}); then echo {name}: $said; else echo {name}: failed; fi\n");
    }
    script
}

#[test]
fn in_one_sandbox_every_client_reaches_two_names_unchanged_and_nothing_else_and_is_advised() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("files")).unwrap();
    let [registry, git, other] = [NAME, GIT, OTHER].map(|name| authority.named(name, stand_in(folder.path())));
    let rule = |name: &str, port| format!("{{ host: {name}, ports: [{port}], methods: [GET, HEAD], inspect: true }}");
    let net = format!(
        "localhost: [{}, {}], allow: [{}, {}]",
        registry.port,
        git.port,
        rule(NAME, registry.port),
        rule(GIT, git.port)
    );
    let Some(scene) = Scene::new(&authority, &net) else { return };
    scene.stage.write("Fetch.java", FETCH_IN_JAVA);
    let has_go = made_of_go(&scene.stage);
    let has_pip = interpreter().is_some_and(|python| {
        make_package(python.to_str().unwrap(), folder.path());
        has_pip(python.to_str().unwrap())
    });
    let is_here = |(name, ..): &&(&str, &str, &str)| match *name {
        "go" => has_go,
        "pip" => has_pip,
        "python" => there("python3"),
        "java" => there("java") && there("javac"),
        name => there(name),
    };
    let clients: Vec<_> = CLIENTS.iter().filter(is_here).collect();
    if there("git") {
        make_repository(folder.path());
    }
    let hosts = format!("127.0.0.1 localhost {NAME} {GIT} {OTHER}\n");
    let run =
        |script: &str| run_named_with(&scene, &hosts, &["--json"], &["sh", "-c", script]).map(|ended| ended.json());
    let Some(outcome) = run(&script(&clients, &registry.url(""), &git.url(""))) else { return };
    let expected: String = clients.iter().map(|(name, _, said)| format!("{name}: {said}\n")).collect();
    assert_eq!(outcome["stdout"], expected, "{outcome:#}");
    assert!(!clients.iter().any(|(name, ..)| *name == "git") || !git.asked().is_empty());
    let asked = registry.asked().len();
    assert!(asked >= clients.len() - 1, "{asked} of {clients:?}");
    // The same clients, and another name that leads to the same machine.
    let outcome = run(&(script(&clients, &other.url(""), &other.url("")) + "exit 3\n")).unwrap();
    let expected: String = clients.iter().map(|(name, ..)| format!("{name}: failed\n")).collect();
    assert_eq!(outcome["stdout"], expected, "{outcome:#}");
    assert_eq!((other.asked().len(), registry.asked().len()), (0, asked));
    let advice = outcome["advice"].as_str().unwrap();
    assert!(advice.contains(NAME) && advice.contains(GIT) && advice.contains("no other way out"), "{advice}");
    assert!(outcome["violations"].to_string().contains(OTHER), "{outcome:#}");
    // And what is forbidden of an allowed one.
    let put = format!("curl -sS -X PUT {}; curl -sS http://{OTHER}:{}/", registry.url("/demo"), other.port);
    let outcome = run(&put).unwrap();
    let said = outcome["stdout"].as_str().unwrap();
    assert!(!there("curl") || said.matches("Ringfence denied").count() == 2 && said.contains(GIT), "{said}");
    assert_eq!((other.asked().len(), registry.asked().len()), (0, asked));
}
