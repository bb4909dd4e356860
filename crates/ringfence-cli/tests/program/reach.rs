//! `ringfence explain` and `ringfence learn`: answers about the network that nobody has to be denied for.

use std::fs;

use serde_json::{Value, json};

use crate::stage::{Ended, Stage};

const SAMPLE: &str = "version: 1
net:
  mode: allowlist
  allow: [pypi.org, { host: api.example.org, methods: [GET], paths: [\"/repos/acme/**\"] }, webhook.site]
  deny: [ads.example.org]
  localhost: [5432]
";

fn explain(stage: &Stage, words: &[&str]) -> Ended {
    stage.ringfence([&["explain"], words].concat()).run()
}

#[test]
fn explain_says_which_rule_allows_and_what_would_allow_the_rest() {
    let stage = Stage::with_policy(SAMPLE);
    let mut pages = String::new();
    for words in [
        &["pypi.org"][..],
        &["evil.example"],
        &["pypi.org:8443"],
        &["ads.example.org"],
        &["webhook.site"],
        &["0251.0376.0251.0376"],
        &["169.254.169.254:80"],
        &["localhost:5433"],
        &["https://api.example.org/repos/acme/x"],
        &["http://api.example.org/repos/acme/x", "--method", "POST"],
        &["a.example\u{1b}[31m"],
    ] {
        pages.push_str(&format!(
            "$ ringfence explain {}\n{}\n",
            words.join(" ").escape_debug(),
            explain(&stage, words).page(&stage)
        ));
    }
    insta::assert_snapshot!(pages);
}

#[test]
fn explain_has_stable_names_in_json() {
    let stage = Stage::with_policy(SAMPLE);
    let denied = explain(&stage, &["evil.example", "--json"]);
    insta::assert_snapshot!(denied.page(&stage));
    let allowed = explain(&stage, &["http://api.example.org/repos/acme/x", "--json"]);
    insta::assert_snapshot!("explained_as_allowed", allowed.page(&stage));
}

#[test]
fn what_explain_advises_is_what_explain_then_allows() {
    let stage = Stage::with_policy("version: 1\n");
    let before = explain(&stage, &["http://a.example/x", "--json"]).expect(1, &[]).json();
    let snippet = before["fix"]["snippet"].as_str().unwrap();
    stage.write("sandbox.policy.yaml", format!("version: 1\n{snippet}"));
    explain(&stage, &["http://a.example/x"]).expect(0, &[]);
    explain(&stage, &["http://a.example/y"]).expect(1, &[]);
    explain(&stage, &["https://a.example/x"]).expect(1, &[]);
}

#[test]
fn explain_speaks_of_the_policy_that_a_run_here_would_have() {
    let stage = Stage::with_policy(SAMPLE);
    let floor = stage.write("floor.yaml", "version: 1\nnet: { mode: allowlist, allow: [other.example] }\n");
    let held = stage.ringfence(["explain", "pypi.org"]).env("RINGFENCE_OPERATOR_POLICY", &floor).run().expect(1, &[]);
    assert!(held.text().contains("only the operator can change that"), "{}", held.text());
    let named = stage.ringfence(["explain", "env.example"]).env("RINGFENCE_ALLOW_HOSTS", "env.example").run();
    assert!(named.expect(0, &[]).text().contains("(environment"), "the layer is named");
    explain(&stage, &["env.example"]).expect(1, &[]);
    explain(&stage, &["ftp://a.example"]).expect(2, &["http or https"]);
    stage.write("sandbox.policy.yaml", "version: 1\nnte: {}\n");
    explain(&stage, &["pypi.org"]).expect(125, &["nte"]);
}

/// A run in the ledger that was denied these.
fn denied(stage: &Stage, contacts: &Value) -> String {
    let outcome = stage.ringfence(["run", "--json", "--backend", "spawn", "--", "true"]).run().json();
    let run = outcome["runId"].as_str().unwrap_or_else(|| panic!("{outcome:#}")).to_owned();
    let ledger = fs::read_to_string(stage.ledger()).unwrap();
    // No proxy stands behind `spawn`, so what one would have written is put there by hand.
    let lines: Vec<String> = ledger
        .lines()
        .map(|line| {
            let mut record: Value = serde_json::from_str(line).unwrap();
            if record["kind"] == "ended" {
                record["body"]["network"] = json!({ "contacts": contacts, "omitted": 0 });
            }
            record.to_string()
        })
        .collect();
    fs::write(stage.ledger(), lines.join("\n") + "\n").unwrap();
    run
}

fn contact(host: &str, port: u16, reason: &str, request: Option<(&str, &str)>) -> Value {
    let mut contact = json!({
        "host": host, "port": port, "via": "connect", "allowed": false, "rule": reason, "reason": reason,
        "count": 2, "bytesUp": 0, "bytesDown": 0,
    });
    if let Some((method, path)) = request {
        contact["via"] = "http".into();
        contact["method"] = method.into();
        contact["path"] = path.into();
    }
    contact
}

#[test]
fn learn_proposes_what_was_denied_and_sets_traps_apart() {
    let stage = Stage::with_policy("version: 1\nnet: { mode: allowlist, allow: [pypi.org] }\n");
    let contacts = json!([
        contact("files.example.org", 443, "net.not-listed", None),
        contact("deb.example.org", 80, "net.not-listed", Some(("GET", "/pool/a.deb"))),
        contact("webhook.site", 443, "net.not-listed", None),
        contact("pypl.org", 443, "net.not-listed", None),
        contact("localhost", 5432, "net.not-listed", None),
        contact("ads.example.org", 443, "net.denied", None),
        contact("a.test }\n  deny: []\u{1b}[2J", 443, "net.not-listed", None),
    ]);
    let run = denied(&stage, &contacts);
    let ended = stage.ringfence(["learn", &run]).run();
    insta::assert_snapshot!(ended.page(&stage));
    // What goes to standard output is a part of a policy file, whatever was asked for.
    stage.write(
        "sandbox.policy.yaml",
        format!("version: 1\n{}", ended.text().replace("net:\n", "net:\n  mode: allowlist\n")),
    );
    let taken = |host: &str| explain(&stage, &[host]).code;
    assert_eq!(["files.example.org", "http://deb.example.org/pool/a.deb"].map(taken), [0, 0]);
    assert_eq!(["http://deb.example.org/pool/b.deb", "pypl.org", "webhook.site", "localhost:5432"].map(taken), [1; 4]);
}

#[test]
fn learn_takes_a_host_that_somebody_names_and_says_so_in_json() {
    let stage = Stage::with_policy("version: 1\nnet: { mode: allowlist }\n");
    let contacts =
        json!([contact("pypl.org", 443, "net.not-listed", None), contact("a.example", 443, "net.port", None)]);
    let run = denied(&stage, &contacts);
    let lesson = stage.ringfence(["learn", "--json", &run]).run().expect(1, &[]).json();
    assert_eq!((&lesson["rules"], &lesson["apart"][0]["host"]), (&json!(["a.example:443"]), &"pypl.org".into()));
    let lesson = stage.ringfence(["learn", "--json", "--include", "pypl.org", &run]).run().expect(0, &[]).json();
    assert_eq!((&lesson["rules"], &lesson["covered"]), (&json!(["a.example:443", "pypl.org:443"]), &2.into()));
}

#[test]
fn learn_from_a_run_that_was_denied_nothing_says_so() {
    let stage = Stage::spawn();
    stage.spawn_sh("true").run().expect(0, &[]);
    let listed = stage.ringfence(["log"]).run().text();
    let run = listed.split_whitespace().next().unwrap();
    let ended = stage.ringfence(["learn", run]).run().expect(0, &["was denied nothing", "nothing is written down"]);
    assert_eq!(ended.text(), "");
    stage.ringfence(["learn", "zzz"]).run().expect(125, &["no run begins with"]);
}
