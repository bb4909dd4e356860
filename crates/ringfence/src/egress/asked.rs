//! The approver of an engine, as its proxies ask it.

use std::sync::Arc;

use ringfence_egress::{Answer, Host};
use ringfence_policy::NetPolicy;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::BoxFuture;
use crate::approve::{Approval, Approver, Ask};
use crate::learn::trap;

/// The rule that asks.
const RULE: &str = "net.unknown";

/// Asks an approver about hosts that no rule names.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) approver: Arc<dyn Approver>,
    /// What is listed, for names that look like something in it.
    pub(super) policy: NetPolicy,
    /// Where the approver lives: what it waits for may be there, and not in the proxy's thread.
    pub(super) runtime: Handle,
}

impl ringfence_egress::Ask for Asked {
    fn ask<'a>(&'a self, host: &'a Host, port: u16) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let mut reason = "no rule of the policy names this host".to_owned();
            if let Some(caution) = trap(&self.policy, host) {
                reason.push_str(&format!("; beware: {caution}"));
            }
            let ask = Ask {
                // In canonical form, which is plain ASCII without a space.
                subject: format!("reach {}:{port}", host.in_url()),
                rule: RULE.to_owned(),
                reason,
            };
            let approver = Arc::clone(&self.approver);
            // A question ends with whoever waits for its answer.
            let mut asking = JoinSet::new();
            asking.spawn_on(async move { approver.decide(&ask).await }, &self.runtime);
            match asking.join_next().await {
                // The proxy remembers its own answers, host by host.
                Some(Ok(Approval::Granted { by } | Approval::GrantedAlways { by })) => Answer::Yes { by },
                Some(Ok(Approval::Denied { reason })) => Answer::No { why: reason },
                Some(Ok(Approval::Absent { reason })) => Answer::Absent { why: reason },
                Some(Err(_)) | None => Answer::No { why: "whoever was asked is gone".to_owned() },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use ringfence_egress::Ask as _;

    use super::*;

    #[derive(Debug, Default)]
    struct Remembers(Mutex<Vec<Ask>>);

    impl Approver for Remembers {
        fn decide<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Approval> {
            self.0.lock().unwrap().push(ask.clone());
            Box::pin(async { Approval::Granted { by: "me".to_owned() } })
        }
    }

    #[tokio::test]
    async fn whoever_is_asked_is_told_of_names_that_look_like_others() {
        let remembers = Arc::new(Remembers::default());
        let policy = ringfence_policy::resolve(&[], &[]).unwrap().net;
        let asked = Asked { approver: Arc::clone(&remembers) as Arc<dyn Approver>, policy, runtime: Handle::current() };
        for host in ["pypl.org", "example.org"] {
            let answer = asked.ask(&Host::parse(host).unwrap(), 443).await;
            assert_eq!(answer, Answer::Yes { by: "me".to_owned() });
        }
        let questions = remembers.0.lock().unwrap();
        assert_eq!(questions[0].subject, "reach pypl.org:443");
        assert!(questions[0].reason.ends_with("beware: it looks like pypi.org, and is another host"), "{questions:?}");
        assert_eq!(questions[1].reason, "no rule of the policy names this host");
    }
}
