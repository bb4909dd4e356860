//! Requests that are signed outside the wall, and headers that go no further.

use crate::inspected::{FETCH, SECRET, Scene, hello};
use crate::probe::interpreter;
use crate::tls_origin::{Answer, Asked, Authority};

/// Whether the signature of a request is right, as an origin with the same key finds it. Written in another language than the proxy.
const VERIFY: &str = "
import hashlib, hmac, sys
key, method, authority, path, value, body = sys.argv[1:]
scheme, fields = value.split(' ', 1)
fields = dict(field.split('=', 1) for field in fields.split(', '))
text = '\\n'.join([scheme, fields['key'], fields['time'], fields['nonce'], method, authority, path, fields['body']])
right = hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
print(scheme, fields['key'], right == fields['signature'], fields['body'] == hashlib.sha256(body.encode()).hexdigest())
";

#[test]
fn a_request_is_signed_outside_and_neither_key_nor_signature_is_inside() {
    let authority = Authority::new();
    let origin = authority.origin("127.0.0.1", |asked: &Asked| {
        Answer::ok(format!("you sent {}\n", asked.header("x-signature").unwrap_or("nothing")))
    });
    let net = format!("allow: [{{ host: 127.0.0.1, ports: [{}], credential: corp }}]", origin.port);
    let Some(scene) = Scene::new(&authority, &net) else { return };
    let key = format!("{SECRET}-{SECRET}");
    std::fs::write(scene.stage.path().join("key"), format!("{key}\n")).unwrap();
    let file = scene.stage.path().join("key");
    scene.user_says(&format!(
        "credentials: {{ corp: {{ from: {{ file: {} }}, hosts: [127.0.0.1], sign: hmac-sha256, header: X-Signature }} }}",
        file.display()
    ));
    let code = format!("import os; print(dict(os.environ))\n{FETCH}");
    let Some(ended) = scene.python(&code, &[&format!("GET {}", origin.url("/a?b=c"))]) else { return };
    assert!(ended.text().contains("200 you sent Ringfence-HMAC-SHA256 key=corp, "), "{ended:?}");
    let asked = origin.asked().pop().unwrap();
    let value = asked.header("x-signature").unwrap();
    let signature = value.rsplit('=').next().unwrap();
    assert!(!format!("{ended:?}").contains(SECRET) && !ended.text().contains(signature), "{ended:?}");
    let Some(python) = interpreter() else { return };
    let verify = |path: &str| {
        let at = format!("127.0.0.1:{}", origin.port);
        let words = ["-c", VERIFY, &key, "GET", &at, path, value, ""];
        let said = std::process::Command::new(&python).args(words).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    assert_eq!(verify("/a?b=c"), "Ringfence-HMAC-SHA256 corp True True\n");
    assert_eq!(verify("/a"), "Ringfence-HMAC-SHA256 corp False True\n", "the probe proves nothing");
    // A key that could be guessed signs nothing.
    std::fs::write(&file, "too-short-for-a-key").unwrap();
    let Some(refused) = scene.python("open('ran', 'w')", &[]) else { return };
    assert!(format!("{refused:?}").contains("at least 32 characters"), "{refused:?}");
    assert!(!format!("{refused:?}").contains("too-short-for"), "{refused:?}");
}

#[test]
fn headers_that_a_rule_leaves_out_do_not_get_out_of_the_wall() {
    let authority = Authority::new();
    let (held, free) = (authority.origin("127.0.0.1", hello), authority.origin("127.0.0.2", hello));
    let net = format!(
        "allow: [{{ host: 127.0.0.1, ports: [{}], strip: [Cookie, X-Id] }}, {{ host: 127.0.0.2, ports: [{}], inspect: true }}]",
        held.port, free.port
    );
    let Some(scene) = Scene::new(&authority, &net) else { return };
    let wanted = [format!("GET {}", held.url("/")), format!("GET {}", free.url("/"))];
    let Some(ended) = scene.python(FETCH, &["Cookie: a=b", "X-Id: 1", "X-Other: 2", &wanted[0], &wanted[1]]) else {
        return;
    };
    assert_eq!(ended.text(), "200 hello\n200 hello\n", "{ended:?}");
    let sent = |asked: Vec<Asked>| ["cookie", "x-id", "x-other"].map(|name| asked[0].header(name).is_some());
    assert_eq!(sent(held.asked()), [false, false, true]);
    assert_eq!(sent(free.asked()), [true, true, true], "the probe proves nothing");
}
