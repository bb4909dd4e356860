use ringfence_policy::{Layer, LayerInput, parse, resolve};

use super::*;

fn policy(net: &str) -> NetPolicy {
    let file = parse("sandbox.policy.yaml", &format!("version: 1\nnet: {{ mode: allowlist, {net} }}\n")).unwrap();
    resolve(&[LayerInput { layer: Layer::Project, file }], &[]).unwrap().net
}

/// The addresses of most of these tests.
const RANGE: NamedAddresses = NamedAddresses::OF_NO_HOST;

/// Where is listened for `net`, besides the proxy itself at port 3128.
fn check(net: &str, expected: &[&str]) {
    let places = Places::of_policy(&policy(net), RANGE, &[3128]);
    let found: Vec<String> = places.sockets().iter().map(ToString::to_string).collect();
    assert_eq!((found.as_slice(), places.omitted()), (expected.map_to_strings().as_slice(), 0), "{net}");
}

trait Strings {
    fn map_to_strings(&self) -> Vec<String>;
}

impl Strings for [&str] {
    fn map_to_strings(&self) -> Vec<String> {
        self.iter().map(|text| (*text).to_owned()).collect()
    }
}

#[test]
fn low_ports_have_one_socket_for_every_address_and_high_ones_one_for_each_name() {
    check("allow: []", &[]);
    check("allow: [a.test, \"*.b.test\"]", &["0.0.0.0:80", "0.0.0.0:443"]);
    check("allow: [{ host: a.test, ports: [22, 443, 8443] }]", &["0.0.0.0:22", "0.0.0.0:443", "198.18.0.2:8443"]);
    check(
        "allow: [{ host: a.test, ports: [8080] }, { host: b.test, ports: [8080] }, { host: a.test, ports: [9090] }]",
        &["198.18.0.2:8080", "198.18.0.3:8080", "198.18.0.2:9090"],
    );
    check("allow: [192.0.2.7]", &[]);
    // Those of this machine are at the sandbox's own loopback.
    check("localhost: [5432, 80, 3128]", &["127.0.0.1:80", "127.0.0.1:5432"]);
    check("allow: [a.test], localhost: [80]", &["0.0.0.0:80", "0.0.0.0:443"]);
    // Names are asked for there.
    check("allow: [{ host: a.test, ports: [53] }]", &[]);
}

#[test]
fn names_below_a_wildcard_share_addresses_and_there_are_never_too_many_sockets() {
    let places = Places::of_policy(&policy("allow: [{ host: \"*.a.test\", ports: [8080, 9090] }]"), RANGE, &[]);
    assert_eq!((places.sockets().len(), places.shared.len()), (2 * SHARED, SHARED));
    let many: Vec<String> = (0..100).map(|number| format!("{{ host: n{number}.test, ports: [8080] }}")).collect();
    let places = Places::of_policy(&policy(&format!("allow: [{}]", many.join(", "))), RANGE, &[]);
    assert_eq!((places.sockets().len(), places.omitted()), (MOST_SOCKETS, 100 - MOST_SOCKETS));
    // What found no place has an address that nobody else gets.
    let policy = policy(&format!("allow: [{}, a.test]", many.join(", ")));
    let (rules, names) = (Rules::of_policy(&policy), Names::new(&Places::of_policy(&policy, RANGE, &[])));
    let Named::Address(address) = names.address_of(&rules, &host("a.test")) else { panic!("it has none") };
    assert_eq!(names.name_at(address), Some(host("a.test")));
    let Named::Address(last) = names.address_of(&rules, &host("n99.test")) else { panic!("it has none") };
    assert_ne!(address, last);
}

fn host(name: &str) -> Host {
    Host::parse(name).unwrap()
}

#[test]
fn only_allowed_names_have_an_address_and_it_stays_theirs() {
    let policy = policy(
        "allow: [a.test, { host: b.test, ports: [8443] }, \"*.c.test\", { host: d.test, methods: [GET] }], deny: [x.c.test]",
    );
    let (rules, names) = (Rules::of_policy(&policy), Names::new(&Places::of_policy(&policy, RANGE, &[])));
    let address = |name: &str| match names.address_of(&rules, &host(name)) {
        Named::Address(address) => Some(address),
        _ => None,
    };
    assert_eq!(address("b.test"), Some(Ipv4Addr::new(198, 18, 0, 2)), "where its socket is");
    for name in ["a.test", "b.test", "one.c.test", "two.c.test", "d.test"] {
        let found = address(name).unwrap();
        assert_eq!((address(name), names.name_at(found)), (Some(found), Some(host(name))), "{name}");
        assert!(RANGE.contain(found));
    }
    for name in ["evil.test", "c.test", "x.c.test", "a.test.evil.test", "b", "192.0.2.7"] {
        assert_eq!(address(name), None, "{name}");
    }
    assert_eq!(names.name_at(Ipv4Addr::new(198, 19, 255, 255)), None, "nobody was told");
    assert!(!RANGE.contain(Ipv4Addr::new(198, 20, 0, 0)) && !RANGE.contain(Ipv4Addr::new(198, 17, 255, 255)));
}

#[test]
fn a_wildcard_names_so_many_and_no_more_and_those_of_the_policy_still_have_theirs() {
    let policy = policy("allow: [a.test, { host: \"*.c.test\", ports: [443, 8443] }]");
    let (rules, names) = (Rules::of_policy(&policy), Names::new(&Places::of_policy(&policy, RANGE, &[])));
    let mut seen = std::collections::HashSet::new();
    for number in 0..MOST_FOUND {
        match names.address_of(&rules, &host(&format!("n{number}.c.test"))) {
            Named::Address(address) => assert!(seen.insert(address), "two names have {address}"),
            other => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!(names.address_of(&rules, &host("more.c.test")), Named::Full);
    assert!(matches!(names.address_of(&rules, &host("a.test")), Named::Address(address) if seen.insert(address)));
    assert!(matches!(names.address_of(&rules, &host("n0.c.test")), Named::Address(_)));
}

#[test]
fn addresses_of_a_loopback_are_told_as_those_of_no_host_are_and_one_that_nobody_was_told_is_not_this_machine() {
    let policy = policy("allow: [a.test, { host: b.test, ports: [8080] }], localhost: [5432]");
    let range = NamedAddresses::OF_A_LOOPBACK;
    let places = Places::of_policy(&policy, range, &[]);
    let found: Vec<String> = places.sockets().iter().map(ToString::to_string).collect();
    assert_eq!(found, ["0.0.0.0:80", "0.0.0.0:443", "127.0.0.1:5432", "127.198.0.2:8080"]);
    let (rules, names) = (Rules::of_policy(&policy), Names::new(&places));
    let Named::Address(address) = names.address_of(&rules, &host("a.test")) else { panic!("it has none") };
    assert!(range.contain(address) && !range.contain(Ipv4Addr::LOCALHOST), "{address}");
    assert_eq!(names.host_at(address), host("a.test"));
    assert_eq!(names.host_at(Ipv4Addr::new(127, 198, 0, 2)), host("b.test"), "where its socket is");
    let nobodys = Ipv4Addr::new(127, 199, 255, 254);
    assert_eq!(names.host_at(nobodys), Host::Address(nobodys.into()));
    assert_eq!(names.host_at(Ipv4Addr::LOCALHOST), Host::of_address(Ipv4Addr::LOCALHOST.into()));
}
