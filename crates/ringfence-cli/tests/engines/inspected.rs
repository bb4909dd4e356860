//! TLS that is opened, and a secret that is put in outside, as a program in a container meets them. The proxy is the same as behind `native`.

use crate::stand_in::{make_repository, stand_in};
use crate::tls_origin::{Answer, Authority};
use crate::walls::for_each_engine;

const SECRET: &str = "s3cret-0123456789-of-the-host";

/// Each argument is a method and a URL; says what came.
const FETCH: &str = "
import sys, os, urllib.request, urllib.error
print(os.environ['TOKEN'])
for word in sys.argv[1:]:
    method, url = word.split(' ')
    try:
        request = urllib.request.Request(url, method=method, headers={'Authorization': 'Bearer ' + os.environ['TOKEN']})
        with urllib.request.urlopen(request, timeout=20) as answer: print(answer.status, answer.read().decode().strip())
    except urllib.error.HTTPError as error: print(error.code, error.read().decode().splitlines()[0])
    except OSError as error: print('none', error)
";

#[test]
fn in_a_container_tls_is_opened_and_a_secret_is_used_that_is_never_inside() {
    let authority = Authority::new();
    let origin = authority.origin("127.0.0.1", |_| Answer::ok("hello\n"));
    let other = Authority::new().origin("127.0.0.1", |_| Answer::ok("hello\n"));
    let policy = format!(
        "net: {{ mode: allowlist, allow: [{{ host: 127.0.0.1, ports: [{}, {}], methods: [GET], credential: key }}] }}\n",
        origin.port, other.port
    );
    for_each_engine(&policy, |place| {
        let trusted = authority.write(place.stage.path());
        let folder = place.stage.path().join("home/.config/ringfence");
        std::fs::create_dir_all(&folder).unwrap();
        let defined = "credentials: { key: { from: { env: HOST_KEY }, hosts: [127.0.0.1], env: TOKEN } }";
        std::fs::write(folder.join("policy.yaml"), format!("version: 1\n{defined}\n")).unwrap();
        let run = |argv: &[&str]| place.run(&[], argv).env("SSL_CERT_FILE", &trusted).env("HOST_KEY", SECRET).run();
        let wanted = [
            format!("GET {}", origin.url("/a")),
            format!("POST {}", origin.url("/b")),
            format!("GET {}", other.url("/")),
        ];
        let ended = run(&["python3", "-c", FETCH, &wanted[0], &wanted[1], &wanted[2]]);
        let text = ended.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["ringfence.key.placeholder", "200 hello"], "{ended:?}");
        assert!(lines[2].starts_with("403 Ringfence denied"), "{ended:?}");
        assert!(lines[3].starts_with("502"), "nobody vouches for it: {ended:?}");
        assert!(other.asked().is_empty());
        let asked = origin.asked().pop().unwrap();
        assert_eq!((asked.method.as_str(), asked.path.as_str()), ("GET", "/a"));
        assert_eq!(asked.header("authorization"), Some(format!("Bearer {SECRET}").as_str()));
        // The words that are looked for are not those of the line itself.
        let look = "cat $SSL_CERT_FILE; env; cat /proc/*/environ /proc/*/cmdline; \
                    grep -rq 'PRIV[A]TE' ${SSL_CERT_FILE%/*} && echo A KEY IS INSI''DE; true";
        let inside = run(&["sh", "-c", look]);
        assert_eq!(inside.text().matches("BEGIN CERTIFICATE").count(), 2, "{inside:?}");
        assert!(!inside.text().contains(SECRET) && !inside.text().contains("A KEY IS INSIDE"), "{inside:?}");
    });
}

/// Says what each client that is in the image got: of what is there, of what must not be done there, and of another place.
const CLIENTS: &str = "
there() { command -v $1 > /dev/null || { echo SKIPPED: there is no $1 in the image; false; }; }
if there curl; then
    echo curl: $(curl -sS -o /tmp/got -w '%{http_code}' $1/demo) $(curl -sS -X PUT $1/demo | grep -o 'Ringfence denied') \
        $(curl -sS $2/demo 2> /dev/null || echo none)
fi
if there git; then
    git clone -q $1/repo.git /tmp/clone && echo git: $(cat /tmp/clone/file) $(git clone -q $2/repo.git /tmp/other 2> /dev/null || echo none)
fi
";

#[test]
fn in_a_container_curl_and_git_work_unchanged_with_tls_that_is_opened_and_reach_nothing_else() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    make_repository(folder.path());
    let origin = authority.origin("127.0.0.1", stand_in(folder.path()));
    let other = authority.origin("127.0.0.1", stand_in(folder.path()));
    let policy = format!(
        "net: {{ mode: allowlist, allow: [{{ host: 127.0.0.1, ports: [{}], methods: [GET, HEAD], inspect: true }}] }}\n",
        origin.port
    );
    for_each_engine(&policy, |place| {
        let trusted = authority.write(place.stage.path());
        let argv = ["sh", "-c", CLIENTS, "sh", &origin.url(""), &other.url("")];
        let ended = place.run(&[], &argv).env("SSL_CERT_FILE", &trusted).run();
        let text = ended.text();
        let (skipped, said): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("SKIPPED"));
        skipped.iter().for_each(|line| eprintln!("{line}"));
        let mut expected = vec!["curl: 200 Ringfence denied none", "git: one none"];
        expected.retain(|line| {
            let name = line.split(':').next().unwrap_or_default();
            !skipped.iter().any(|skipped| skipped.contains(&format!(" {name} ")))
        });
        assert_eq!(said, expected, "{ended:?}");
        assert!(other.asked().is_empty() && (said.is_empty() || !origin.asked().is_empty()), "{ended:?}");
        assert!(origin.asked().iter().all(|asked| asked.method != "PUT"));
    });
}
