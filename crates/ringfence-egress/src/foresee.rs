//! What can be said of a target before anything is looked up or dialled: the decision, and what follows from an address that
//! stands there already. Judges by the same functions as the proxy, and by nothing else.

use crate::address::{self, CameBy};
use crate::decide::{Decision, Target, decide, deny_because};
use crate::denial::Reason;
use crate::host::Host;
use crate::rules::Rules;
use crate::strangers;

/// What the proxy would say of `target`, as far as that does not need a lookup. Nothing is sent.
pub fn foresee(rules: &Rules, target: &Target<'_>) -> Decision {
    let decision = decide(rules, target);
    let (Decision::Allowed(_), Some(addresses)) = (&decision, target.host.addresses()) else { return decision };
    for address in addresses {
        if let Err(why) = address::judge(rules, address, target.port, CameBy::Itself) {
            return Decision::Denied(deny_because(rules, target, Reason::Address, &why));
        }
    }
    decision
}

/// Whether `host` hands what it gets to whoever has an account there: its rule needs more than its name.
pub fn is_channel_to_strangers(host: &Host) -> bool {
    matches!(host, Host::Name(name) if strangers::is_channel(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Access;
    use crate::rules::Rule;

    fn check(rules: &Rules, host: &str, expected: Option<Reason>) {
        let host = Host::parse(host).unwrap();
        let target = Target { host: &host, port: 80, access: Access::Connection };
        let reason = match foresee(rules, &target) {
            Decision::Allowed(_) => None,
            Decision::Denied(denied) => Some(denied.reason),
        };
        assert_eq!(reason, expected, "{host}");
    }

    #[test]
    fn an_address_that_is_not_public_is_foreseen_as_refused_unless_a_rule_names_it() {
        let mut policy = ringfence_policy::resolve(&[], &[]).unwrap().net;
        policy.mode.value = ringfence_policy::NetMode::Open;
        let open = Rules::of_policy(&policy);
        check(&open, "10.0.0.7", Some(Reason::Address));
        check(&open, "a.test", None);
        let named = Rules::none().allow(Rule::new("10.0.0.7".parse().unwrap(), "named"));
        check(&named, "10.0.0.7", None);
        check(&named, "10.0.0.8", Some(Reason::NotListed));
    }
}
