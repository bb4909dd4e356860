//! Where names lead.

use ringfence_egress::Rules;

use crate::stage::{Names, Origin, Stage, get, rule};

#[tokio::test]
async fn e09_an_allowed_name_that_leads_inside_is_refused_unless_the_policy_names_the_address() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let stage = Stage::new(Rules::none().allow(rule(&at))).await;
    let answer = stage.talk(get(&at, "/")).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(answer.contains("this machine, which no rule names (net.address)"), "{answer}");
    let denied = stage.connect(&at).await.unwrap_err();
    assert!(denied.contains("(net.address)"), "{denied}");
    assert_eq!(stage.socks(b"name.test", origin.port).await.err(), Some(2));
    assert_eq!((origin.connections(), stage.book.denials()), (0, vec!["net.address"; 3]));

    // The twin: the same probe, with the address named.
    for rules in [
        Rules::none().allow(rule(&at)).localhost(origin.port),
        Rules::none().allow(rule(&at)).allow(rule(format!("127.0.0.1:{}", origin.port))),
    ] {
        let stage = Stage::new(rules).await;
        assert!(stage.talk(get(&at, "/")).await.starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(origin.seen().len(), 2);
}

#[tokio::test]
async fn e09_one_bad_address_spoils_an_answer_in_every_dress() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    for bad in
        ["10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::10.0.0.1", "169.254.169.254", "fd00:ec2::254", "0.0.0.0", "::"]
    {
        let names = Names::of(&[("name.test", &[&["127.0.0.1", bad]])]);
        let named = format!("127.0.0.1:{}", origin.port);
        let named = if bad == "::ffff:127.0.0.1" { "192.0.2.1:1".to_owned() } else { named };
        let rules = Rules::none().allow(rule(&at)).allow(rule(named));
        let stage = Stage::with(rules, names, |builder| builder).await;
        let answer = stage.talk(get(&at, "/")).await;
        assert!(answer.contains("(net.address)"), "{bad}: {answer}");
        assert!(!answer.contains(bad), "{answer}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn e10_a_name_is_looked_up_once_so_an_answer_that_changes_has_no_effect() {
    let origin = Origin::plain().await;
    let forbidden = Origin::plain().await;
    // The second answer is where nothing may go; nobody asks for it.
    let names = Names::of(&[("name.test", &[&["127.0.0.1"], &["127.0.0.2"]])]);
    let at = format!("name.test:{}", origin.port);
    let rules = Rules::none().allow(rule(&at)).allow(rule(format!("127.0.0.1:{}", origin.port)));
    let stage = Stage::with(rules, names, |builder| builder).await;
    assert!(stage.talk(get(&at, "/first")).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(stage.names.asked(), ["name.test"]);
    // A new connection asks again, and is judged again.
    let answer = stage.talk(get(&at, "/second")).await;
    assert!(answer.contains("(net.address)"), "{answer}");
    assert_eq!(origin.seen().len(), 1);
    assert_eq!(forbidden.connections(), 0);
}

#[tokio::test]
async fn e11_nothing_is_looked_up_for_a_name_that_is_not_allowed() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let stage = Stage::new(Rules::none().allow(rule(&at)).localhost(origin.port)).await;
    assert!(stage.talk(get("c2VjcmV0.evil.test", "/")).await.contains("(net.not-listed)"));
    assert!(stage.connect("c2VjcmV0.evil.test:443").await.is_err());
    assert_eq!(stage.socks(b"c2VjcmV0.evil.test", 53).await.err(), Some(2));
    // Not for an allowed name on a port that is not, either.
    assert!(stage.connect("name.test:53").await.is_err());
    assert!(stage.names.asked().is_empty());
    assert!(stage.talk(get(&at, "/")).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(stage.names.asked(), ["name.test"]);
}

#[tokio::test]
async fn e14_a_service_of_this_machine_is_reached_on_listed_ports_only() {
    let origin = Origin::plain().await;
    for host in ["localhost", "127.0.0.1"] {
        let at = format!("{host}:{}", origin.port);
        let closed = Stage::new(Rules::none().allow(rule("pypi.org"))).await;
        assert!(closed.talk(get(&at, "/")).await.contains("(net.not-listed)"));
        assert!(closed.connect(&at).await.is_err());
        assert_eq!(origin.connections(), 0);
    }
    let open = Stage::new(Rules::none().localhost(origin.port)).await;
    assert!(open.talk(get(&format!("localhost:{}", origin.port), "/")).await.starts_with("HTTP/1.1 200 "));
    assert!(open.connect(&format!("127.0.0.1:{}", origin.port)).await.is_ok());
    assert!(open.names.asked().is_empty());
}

#[tokio::test]
async fn a_name_that_has_no_address_is_an_error_and_not_a_denial() {
    let names = Names::of(&[("name.test", &[&[]])]);
    let stage = Stage::with(Rules::none().allow(rule("name.test")), names, |builder| builder).await;
    assert!(stage.talk(get("name.test", "/")).await.starts_with("HTTP/1.1 502 "));
    assert!(stage.connect("name.test:443").await.unwrap_err().starts_with("HTTP/1.1 502 "));
    assert_eq!(stage.socks(b"name.test", 443).await.err(), Some(1));
    assert!(stage.book.denials().is_empty());
}
