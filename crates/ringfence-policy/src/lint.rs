//! What is allowed in a policy and probably not meant.

use crate::diagnostic::Diagnostic;
use crate::file::{PolicyFile, Written};
use crate::host::NetRule;
use crate::image::ImageKind;
use crate::path::Glob;
use crate::policy::{
    BackendChoice, BackendKind, Firmness, ImagePull, Mount, MountMode, NetMode, ResolvedPolicy, WorkspaceMode,
};
use crate::validate::ValidateLevel;

/// Warnings about `file`, given what all layers resolve to.
pub fn lint(file: &PolicyFile, resolved: &ResolvedPolicy) -> Vec<Diagnostic> {
    let mut warnings = Warnings(Vec::new());
    warnings.backend(file);
    warnings.containers(file, resolved);
    warnings.fs(file);
    warnings.net(file, resolved);
    warnings.limits(file, resolved);
    warnings.env(file);
    warnings.validate(file, resolved);
    warnings.commands(file);
    for (index, preset) in file.extends.iter().enumerate() {
        if file.extends.iter().take(index).any(|earlier| earlier.value == preset.value) {
            warnings.at(preset, "lint::repeated", format!("`preset:{}` is extended twice", preset.value), "keep one");
        }
    }
    warnings.0
}

struct Warnings(Vec<Diagnostic>);

impl Warnings {
    fn at<T>(
        &mut self,
        written: &Written<T>,
        code: &'static str,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) {
        let warning = Diagnostic::warning(code, message).advise(advice);
        self.0.push(warning.at(Some(written.place.clone())).spanning(written.span.clone()));
    }

    fn backend(&mut self, file: &PolicyFile) {
        if let Some(backend) = &file.backend
            && let BackendChoice::Kind(kind) = backend.value
            && !kind.isolates()
        {
            self.at(backend, "lint::weak-backend", weakness(kind), "use `auto` unless the program is trusted");
        }
        for kind in file.fallback.iter().flatten().filter(|kind| !kind.value.isolates()) {
            let message = format!("when the wanted wall is missing, {}", weakness(kind.value));
            self.at(kind, "lint::weak-fallback", message, "leave it out: a missing wall is then an error with its fix");
        }
    }

    fn containers(&mut self, file: &PolicyFile, resolved: &ResolvedPolicy) {
        let choice = &resolved.backend.choice;
        let engine = match choice.value {
            BackendChoice::Auto | BackendChoice::Kind(BackendKind::Docker | BackendKind::Podman) => true,
            BackendChoice::Kind(
                BackendKind::Native
                | BackendKind::Microvm
                | BackendKind::Kubernetes
                | BackendKind::Landlock
                | BackendKind::Spawn
                | BackendKind::None,
            ) => false,
        };
        if let Some(runtime) = file.runtime.as_ref().filter(|_| !engine) {
            let message = format!("`{}` ({}) has no OCI runtime", choice.value, choice.origin);
            self.at(runtime, "lint::unused-runtime", message, "use `docker` or `podman`, or remove `runtime`");
        }
        let Some(pull) = file.image_pull.as_ref().filter(|pull| pull.value == ImagePull::Allow) else { return };
        match resolved.image.as_ref().map(|image| (image, image.value.kind())) {
            Some((image, ImageKind::Reference)) if !image.value.as_str().contains("@sha256:") => {
                let message = format!("whoever may push `{}` decides what runs here", image.value);
                self.at(pull, "lint::unpinned-image", message, "name the image with its digest: `NAME@sha256:…`");
            }
            Some((_, ImageKind::Reference | ImageKind::Build(_))) => {}
            Some((_, ImageKind::Folder(_) | ImageKind::Rootfs(_) | ImageKind::Layout { .. })) | None => {
                let message = "no image is named that could be fetched";
                self.at(pull, "lint::unused-pull", message, "say `pull: never`, or name an image");
            }
        }
    }

    fn fs(&mut self, file: &PolicyFile) {
        if let Some(mode) = file.fs.mode.as_ref().filter(|mode| mode.value == WorkspaceMode::Direct) {
            let message = "`direct` writes to the workspace without a review";
            self.at(mode, "lint::direct", message, "use `review` unless the folder is thrown away afterwards");
        }
        for mount in file.fs.mounts.iter().flatten() {
            if let Mount::Host { host, mode: MountMode::ReadWrite, .. } = &mount.value {
                let message = format!("the host's `{host}` can be changed without a review");
                self.at(mount, "lint::writable-mount", message, "use `read-only` where the program only reads");
            }
        }
        self.repeated(file.fs.deny.as_deref().unwrap_or_default());
        self.repeated(file.fs.protect.as_deref().unwrap_or_default());
    }

    fn repeated(&mut self, globs: &[Written<Glob>]) {
        for (index, glob) in globs.iter().enumerate() {
            if let Some(earlier) = globs.iter().take(index).find(|earlier| earlier.value == glob.value) {
                let message = format!("`{}` is already there, on line {}", glob.value, earlier.place.line);
                self.at(glob, "lint::repeated", message, "keep one");
            }
        }
    }

    fn net(&mut self, file: &PolicyFile, resolved: &ResolvedPolicy) {
        let allow = file.net.allow.as_deref().unwrap_or_default();
        match (&file.net.mode, resolved.net.mode.value) {
            (Some(mode), NetMode::Open) if mode.value == NetMode::Open => {
                let message = "`open` lets the program send what it reads to anywhere";
                self.at(mode, "lint::net-open", message, "use `allowlist` and name the hosts under `allow`");
            }
            (Some(mode), NetMode::Allowlist) if resolved.net.allow.is_empty() => {
                let message = "the allowlist is empty, so nothing can be reached";
                self.at(mode, "lint::empty-allowlist", message, "name hosts under `allow`, or say `mode: none`");
            }
            (_, NetMode::None) => {
                if let Some(first) = allow.first() {
                    let message = format!("hosts are listed, but the network is `none` ({})", resolved.net.mode.origin);
                    self.at(first, "lint::unused-allow", message, "say `mode: allowlist`, or remove the hosts");
                }
            }
            _ => {}
        }
        if let Some(unknown) = file.net.unknown.as_ref().filter(|unknown| unknown.value > resolved.net.unknown.value) {
            let message = format!("hosts that no rule names are denied ({})", resolved.net.unknown.origin);
            self.at(unknown, "lint::not-asked", message, "remove `unknown`, or have the other layer say `ask`");
        }
        for (index, rule) in allow.iter().enumerate() {
            let covering = allow.iter().enumerate().find(|(other_index, other)| {
                *other_index != index
                    && other.value.covers(&rule.value)
                    && rule.value.credential.is_none()
                    && (*other_index < index || !rule.value.covers(&other.value))
            });
            if let Some((_, other)) = covering {
                let message = format!("`{}` is covered by `{}`, on line {}", rule.value, other.value, other.place.line);
                self.at(rule, "lint::covered", message, "remove it");
            }
            self.rule(rule, resolved);
            if let Some(deny) = resolved.net.deny.iter().find(|deny| deny.value.covers(&rule.value)) {
                let message = format!("`{}` is denied ({}), and deny wins", rule.value, deny.origin);
                self.at(rule, "lint::denied-allow", message, "remove one of the two");
            }
        }
    }

    /// What a rule asks for and would not get.
    fn rule(&mut self, rule: &Written<NetRule>, resolved: &ResolvedPolicy) {
        let NetRule { host, ports, methods, paths, credential, budget, .. } = &rule.value;
        let looks = !methods.is_empty() || !paths.is_empty();
        if looks && !rule.value.inspects() && ports.contains(&443) {
            let message = format!("HTTPS to {host} will be denied: its methods and paths cannot be seen");
            self.at(rule, "lint::closed-tls", message, "add `inspect: true`, so that TLS is opened and looked into");
        }
        let counts = budget.requests.is_some() || budget.rate.is_some();
        if counts && !rule.value.inspects() {
            let message = format!("requests to {host} inside TLS are not seen; each tunnel counts as one");
            self.at(rule, "lint::uncounted", message, "add `inspect: true`, or limit `connections` and `bytes`");
        }
        if let Some(name) = credential.as_ref().filter(|name| !resolved.credentials.contains_key(*name)) {
            let message = format!("nothing says where the credential `{name}` comes from");
            let advice = format!(
                "define it in your own file, such as `~/.config/ringfence/policy.yaml`: `credentials: {{ {name}: {{ from: {{ env: NAME }}, hosts: [{host}] }} }}`"
            );
            self.at(rule, "lint::unknown-credential", message, advice);
        }
    }

    fn limits(&mut self, file: &PolicyFile, resolved: &ResolvedPolicy) {
        let choice = &resolved.backend.choice;
        if let Some(limits) = &file.proc.limits
            && limits.value == Firmness::Enforced
            && !choice.value.isolates()
        {
            let message = format!("`{}` ({}) can only watch the limits", choice.value, choice.origin);
            self.at(limits, "lint::unkept-limits", message, "use `auto`, or say `limits: watched`");
        }
    }

    fn validate(&mut self, file: &PolicyFile, resolved: &ResolvedPolicy) {
        let held = &resolved.validate;
        let lists = file.validate.commands.iter().chain(&file.validate.modules).flatten();
        if let Some(first) = lists.into_iter().next().filter(|_| held.level.value != ValidateLevel::Strict) {
            let message = format!("names are listed, but requests are read at `{}`", held.level.value);
            self.at(first, "lint::unused-list", message, "say `level: strict`, or remove the lists");
        }
        let Some(level) = &file.validate.level else { return };
        match level.value {
            ValidateLevel::Strict if held.commands.is_empty() && held.modules.is_empty() => {
                let message = "`strict` runs only listed commands and modules, and none is listed";
                self.at(level, "lint::empty-list", message, "write `validate: { level: strict, commands: [git] }`");
            }
            ValidateLevel::Off => {
                let message = "`off` runs what is dangerous without telling";
                self.at(level, "lint::not-read", message, "use `warn`, which stops nothing and tells");
            }
            level_now if level_now > held.level.value => {
                let message = format!("requests are read at `{}` ({})", held.level.value, held.level.origin);
                self.at(level, "lint::not-read", message, "remove it, or have the other layer say so");
            }
            ValidateLevel::Strict | ValidateLevel::Standard | ValidateLevel::Warn => {}
        }
    }

    fn env(&mut self, file: &PolicyFile) {
        for name in file.proc.pass.iter().flatten().filter(|name| looks_secret(&name.value)) {
            let message = format!("`{}` looks like a secret, and the program could send it on", name.value);
            self.at(name, "lint::secret", message, "let the proxy add it: `net.allow` with `credential`");
        }
        for (name, value) in file.proc.set.iter().flatten().filter(|(name, _)| looks_secret(name)) {
            let message = format!("`{name}` looks like a secret in a file that others read");
            self.at(value, "lint::secret", message, "let the proxy add it: `net.allow` with `credential`");
        }
    }

    fn commands(&mut self, file: &PolicyFile) {
        let rules = file.commands.as_deref().unwrap_or_default();
        for (index, rule) in rules.iter().enumerate() {
            if rule.value.matches.is_empty() {
                let message = "the rule has no example that shows what it matches";
                self.at(
                    rule,
                    "lint::no-example",
                    message,
                    "add one such as `matches: [\"rm -rf /\"]`; it is checked at load",
                );
            }
            let beaten = rules.iter().enumerate().find(|(other_index, other)| {
                other.value.prefix == rule.value.prefix
                    && (other.value.verdict, *other_index) > (rule.value.verdict, index)
            });
            if let Some((_, other)) = beaten {
                let message =
                    format!("the rule never decides: the one on line {} has the same words", other.place.line);
                self.at(rule, "lint::shadowed", message, "remove one of the two");
            }
        }
    }
}

fn weakness(kind: BackendKind) -> &'static str {
    match kind {
        BackendKind::None => "`none` runs the program with all the rights of the person who starts it",
        BackendKind::Landlock => {
            "`landlock` confines files and network, but hides no processes and limits neither disk nor processors"
        }
        BackendKind::Spawn => "`spawn` limits time and memory, but confines neither files nor network",
        BackendKind::Native
        | BackendKind::Docker
        | BackendKind::Podman
        | BackendKind::Microvm
        | BackendKind::Kubernetes => "the wall isolates",
    }
}

fn looks_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "PRIVATE_KEY", "ACCESS_KEY", "CREDENTIAL"]
        .iter()
        .any(|word| upper.contains(word))
}
