//! What becomes of hosts that no rule names, and through which proxy everything goes: what a floor and a call make of it.

use ringfence_policy::{Layer, Overrides, ResolvedPolicy, UnknownHosts, narrow, resolve};

use crate::layer;

const BELOW: &str = "net: { mode: allowlist, allow: [a.test], unknown: ask, upstream: \"http://proxy.test:3128\" }";

fn under(operator: &str) -> ResolvedPolicy {
    resolve(&[layer(Layer::User, BELOW), layer(Layer::Operator, operator)], &[]).unwrap()
}

#[test]
fn who_lists_hosts_permits_no_questions_and_no_other_proxy() {
    let check = |operator: &str, unknown: UnknownHosts, upstream: Option<&str>| {
        let net = under(operator).net;
        assert_eq!(net.unknown.value, unknown, "{operator}");
        assert_eq!(net.upstream.map(|upstream| upstream.value.to_string()).as_deref(), upstream, "{operator}");
        if unknown == UnknownHosts::Deny {
            assert_eq!(net.unknown.origin.layer, Layer::Operator, "{operator}");
        }
    };
    let theirs = Some("http://proxy.test:3128");
    check("net: { allow: [a.test] }", UnknownHosts::Deny, None);
    check("net: { allow: [] }", UnknownHosts::Deny, None);
    check("net: { unknown: deny }", UnknownHosts::Deny, theirs);
    check("net: { deny: [bad.test] }", UnknownHosts::Ask, None);
    check("net: { allow: [a.test], unknown: ask }", UnknownHosts::Ask, None);
    check(
        "net: { allow: [a.test], upstream: \"http://own.test:8080\" }",
        UnknownHosts::Deny,
        Some("http://own.test:8080"),
    );
    // The twins: who says nothing about hosts holds nobody.
    check("net: { mode: allowlist }", UnknownHosts::Ask, theirs);
    check("proc: { memory: 1GiB }", UnknownHosts::Ask, theirs);
}

#[test]
fn a_call_that_lists_hosts_has_nobody_asked_for_others() {
    let policy = resolve(&[layer(Layer::User, BELOW)], &[]).unwrap();
    let asked = |overrides: Overrides| narrow(&policy, &overrides).unwrap().net.unknown.value;
    let mut listing = Overrides::default();
    listing.net.allow = Some(vec!["a.test".parse().unwrap()]);
    assert_eq!(asked(listing.clone()), UnknownHosts::Deny);
    listing.net.unknown = Some(UnknownHosts::Ask);
    assert_eq!(asked(listing), UnknownHosts::Ask, "unless it says so");
    assert_eq!(asked(Overrides::default()), UnknownHosts::Ask);
}
