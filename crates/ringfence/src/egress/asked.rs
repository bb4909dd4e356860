//! The approver of an engine, as its proxies ask it.

use std::sync::Arc;

use ringfence_egress::{Answer, Host};

use crate::BoxFuture;
use crate::approve::{Approval, Approver, Ask};

/// The rule that asks.
const RULE: &str = "net.unknown";

/// Asks an approver about hosts that no rule names.
#[derive(Debug)]
pub(super) struct Asked(pub(super) Arc<dyn Approver>);

impl ringfence_egress::Ask for Asked {
    fn ask<'a>(&'a self, host: &'a Host, port: u16) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let ask = Ask {
                // In canonical form, which is plain ASCII without a space.
                subject: format!("reach {}:{port}", host.in_url()),
                rule: RULE.to_owned(),
                reason: "no rule of the policy names this host".to_owned(),
            };
            match self.0.decide(&ask).await {
                Approval::Granted { by } => Answer::Yes { by },
                Approval::Denied { reason } => Answer::No { why: reason },
            }
        })
    }
}
