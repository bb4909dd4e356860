//! Clients of other languages behind the wall, unchanged and over TLS that is opened. They heed no variable for proxies: names lead them
//! to us. What is not there is skipped, loudly.

use std::path::Path;

use crate::inspected::{Scene, hello, run_named, there};
use crate::tls_origin::{Authority, TlsOrigin};

const NAME: &str = "registry.example.test";
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

#[test]
fn java_fetches_unchanged() {
    if !there("java") || !there("javac") {
        return;
    }
    let Some(wanted) = wanted() else { return };
    wanted.write(
        "Fetch.java",
        "import java.net.URI;
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
",
    );
    wanted.check(&["java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "Fetch.java"]);
}

#[test]
fn go_fetches_unchanged() {
    // Where Go is unpacked by hand, too.
    let by_hand = Path::new("/usr/local/go/bin/go");
    if !by_hand.is_file() && !there("go") {
        return;
    }
    let Some(wanted) = wanted() else { return };
    let go = if by_hand.is_file() { "/usr/local/go/bin/go" } else { "go" };
    let source = "package main

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
    wanted.write("fetch.go", source);
    // Made outside: what is shown is what the program does, and not its compiler.
    let made = std::process::Command::new(go)
        .args(["build", "-o", "fetch", "fetch.go"])
        .current_dir(wanted.scene.stage.work())
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "off")
        .env("CGO_ENABLED", "0")
        .env("GOCACHE", wanted.scene.stage.path().join("gocache"))
        .status();
    assert!(made.is_ok_and(|made| made.success()));
    wanted.check(&["./fetch"]);
}
