//! What the way out of a wall needs besides its door: rules, secrets, an authority of its own, and what is put inside so that
//! programs find and trust it. Made before the wall is raised, because some of it is shown there.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ringfence_egress::{
    Budget, Budgets, Credential, Identity, InspectError, Inspector, Proxy, ProxyBuilder, Rules, TrustFiles,
    java_environment, trust_environment,
};
use ringfence_linux::launcher::Threads;
use ringfence_policy::{CredentialPolicy, NetMode, ResolvedPolicy, SecretSource, SecretUse};

use crate::plan::UPSTREAM_CREDENTIAL;
use crate::secret::{self, SecretError};

/// Where certificates are inside, for programs that are told so by a variable.
pub(crate) const BUNDLE: &str = "/run/ringfence/ca.pem";
/// Likewise, for Java.
pub(crate) const JAVA_STORE: &str = "/run/ringfence/java.jks";
/// Where Debian's Java looks.
pub(crate) const JAVA_SYSTEM_STORE: &str = "/etc/ssl/certs/java/cacerts";
/// Where programs look that heed no variable.
pub(crate) const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The way out of one wall, ready for its door.
pub(crate) struct WayOut {
    rules: Rules,
    budgets: Budgets,
    inspector: Option<Arc<Inspector>>,
    /// Those whose secrets are still to be fetched.
    wanted: Vec<(String, CredentialPolicy)>,
    credentials: Vec<Credential>,
    /// What the process may have that lets it out.
    threads: Threads,
}

/// Why there is no way out.
#[derive(Debug, thiserror::Error)]
pub enum WayOutError {
    /// A secret cannot be had.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// TLS cannot be opened.
    #[error(transparent)]
    Inspect(#[from] InspectError),
}

impl WayOut {
    /// Makes all that the policy's rules need, but for secrets. Nothing for a wall without a network of ours.
    pub(crate) fn prepare(policy: &ResolvedPolicy, threads: Threads) -> Result<Option<Self>, WayOutError> {
        if policy.net.mode.value != NetMode::Allowlist {
            return Ok(None);
        }
        let rules = Rules::of_policy(&policy.net);
        let inspector = if rules.need_inspection() { Some(Arc::new(Inspector::new()?)) } else { None };
        let wanted =
            used(policy)?.into_iter().map(|(name, credential)| (name.to_owned(), credential.clone())).collect();
        let budgets = Budgets { run: Budget::from(&policy.net.budget.value), host: Budget::default() };
        Ok(Some(Self { rules, budgets, inspector, wanted, credentials: Vec::new(), threads }))
    }

    /// How many threads this process may have now that the wall stands.
    pub(crate) fn threads(&self) -> Threads {
        self.threads
    }

    /// Fetches the secrets. Not before the wall stands: the process behind it may be a copy of this one.
    /// Nothing in `workspace` is run for it.
    pub(crate) async fn with_secrets(mut self, workspace: &Path) -> Result<Self, WayOutError> {
        for (name, credential) in std::mem::take(&mut self.wanted) {
            let from = secret::fetch(&name, &credential.from, workspace).await?;
            let unfit = |source| SecretError::Unfit { name: name.clone(), source };
            let made = Credential::new(name.as_str(), &placeholder(&name), &from).map_err(unfit)?;
            let made = match &credential.secret {
                SecretUse::Sent { prefix } => made.sent_in(&credential.header, prefix),
                SecretUse::Signs => made.signing_in(&credential.header),
            };
            self.credentials.push(made.map_err(unfit)?);
        }
        Ok(self)
    }

    /// What programs have to see to trust what is opened; nothing when nothing is.
    pub(crate) fn trust(&self) -> Option<TrustFiles> {
        self.inspector.as_deref().map(TrustFiles::of)
    }

    /// A proxy for the sandbox `identity`.
    pub(crate) fn proxy(self, identity: Identity) -> ProxyBuilder {
        let mut builder = Proxy::builder(identity, self.rules).budgets(self.budgets);
        if let Some(inspector) = self.inspector {
            builder = builder.inspector(inspector);
        }
        self.credentials.into_iter().fold(builder, ProxyBuilder::credential)
    }
}

/// Shows no secret.
impl fmt::Debug for WayOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WayOut").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

/// The credentials that rules of `policy` name. Looked at once more here, where secrets leave the host: one that is not
/// defined, or for another host, gets no further.
fn used(policy: &ResolvedPolicy) -> Result<BTreeMap<&str, &CredentialPolicy>, SecretError> {
    let mut found = BTreeMap::new();
    for rule in &policy.net.allow {
        let Some(name) = rule.value.credential.as_deref() else { continue };
        let defined = policy.credentials.get(name).ok_or_else(|| SecretError::Undefined(name.to_owned()))?;
        if !defined.value.is_for(&rule.value.host) {
            return Err(SecretError::NotFor { name: name.to_owned(), host: rule.value.host.to_string() });
        }
        found.insert(name, &defined.value);
    }
    Ok(found)
}

/// What stands for the secret of the credential `name` inside. Names have no dot, so none is a part of another's.
fn placeholder(name: &str) -> String {
    format!("ringfence.{name}.placeholder")
}

/// Variables by which programs trust what is opened; the policy may set others.
pub(crate) fn trust_variables(policy: &ResolvedPolicy) -> Vec<(&'static str, String)> {
    let inspects = policy.net.allow.iter().any(|rule| rule.value.inspects());
    if policy.net.mode.value != NetMode::Allowlist || !inspects {
        return Vec::new();
    }
    let mut variables = trust_environment(BUNDLE);
    if !covers_java(policy) {
        variables.extend(java_environment(JAVA_STORE));
    }
    variables
}

/// Whether the key store of the system's Java is one that we lie over.
pub(crate) fn covers_java(policy: &ResolvedPolicy) -> bool {
    policy.image.is_none() && Path::new(JAVA_SYSTEM_STORE).is_file()
}

/// Variables that hold placeholders; nothing may stand in their place.
pub(crate) fn placeholders(policy: &ResolvedPolicy) -> Vec<(String, String)> {
    if policy.net.mode.value != NetMode::Allowlist {
        return Vec::new();
    }
    let named = policy.net.allow.iter().filter_map(|rule| rule.value.credential.as_deref());
    let defined = named.filter_map(|name| Some((name, policy.credentials.get(name)?)));
    defined.filter_map(|(name, known)| Some((known.value.env.clone()?, placeholder(name)))).collect()
}

/// Whether a variable of the host holds a secret of the way out. No program gets it, whatever is passed, and whether or not a rule of this run
/// uses it: a call that leaves the rule out must not get the secret itself instead.
pub(crate) fn is_held_back(policy: &ResolvedPolicy, variable: &str) -> bool {
    let is_source = |from: &SecretSource| matches!(from, SecretSource::Env(name) if name == variable);
    variable == UPSTREAM_CREDENTIAL || policy.credentials.values().any(|credential| is_source(&credential.value.from))
}
