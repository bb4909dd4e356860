//! Layers become one policy: defaults, then user, project and environment, each after its presets; then grants; then the
//! operator's floor. A scalar of a later layer replaces; lists of what is denied and allowed grow.

use crate::credential::{check_layers, check_uses};
use crate::diagnostic::Diagnostic;
use crate::file::{PolicyFile, Written};
use crate::floor::hold_floor;
use crate::grant::Grant;
use crate::narrow::apply_grant;
use crate::policy::{
    BackendChoice, BackendPolicy, EnvPolicy, FsPolicy, Layer, NetPolicy, Origin, OverridesPolicy, ProcPolicy,
    ResolvedPolicy, Sourced, ToolsPolicy, UnknownHosts,
};
use crate::preset::default_file;
use crate::validate::ValidatePolicy;

/// One layer: who speaks, and what was written. The layer is user, project, environment or operator.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerInput {
    /// Who speaks.
    pub layer: Layer,
    /// What was written.
    pub file: PolicyFile,
}

/// Resolves the layers, in their own order whatever the order of `inputs`. Several inputs of one layer apply in the order
/// given, so that flags can follow variables.
///
/// Fails when a grant asks for what nobody made grantable.
pub fn resolve(inputs: &[LayerInput], grants: &[Grant]) -> Result<ResolvedPolicy, Vec<Diagnostic>> {
    let mut problems = Vec::new();
    let mut policy = start(default_file()?)?;
    for input in inputs {
        if !matches!(input.layer, Layer::User | Layer::Project | Layer::Environment | Layer::Operator) {
            let message = format!("`{}` is not a layer that comes from outside", input.layer);
            problems.push(Diagnostic::error("policy::layer", message));
        }
    }
    check_layers(inputs, &mut problems);
    for wanted in [Layer::User, Layer::Project, Layer::Environment] {
        for input in inputs.iter().filter(|input| input.layer == wanted) {
            for preset in &input.file.extends {
                apply(&mut policy, &Layer::Preset(preset.value), preset.value.file()?);
            }
            apply(&mut policy, &wanted, &input.file);
        }
    }
    for grant in grants {
        apply_grant(&mut policy, grant, &mut problems);
    }
    clamp_timeout(&mut policy);
    for input in inputs.iter().filter(|input| input.layer == Layer::Operator) {
        let earlier = policy.clone();
        for preset in &input.file.extends {
            let origin = Origin { layer: Layer::Operator, place: Some(preset.place.clone()) };
            hold_floor(&mut policy, preset.value.file()?, Some(&origin), &earlier);
        }
        hold_floor(&mut policy, &input.file, None, &earlier);
    }
    clamp_timeout(&mut policy);
    check_uses(&policy, &mut problems);
    if problems.is_empty() { Ok(policy) } else { Err(problems) }
}

/// The default time limit is never above the ceiling, whoever set either.
fn clamp_timeout(policy: &mut ResolvedPolicy) {
    if policy.proc.timeout.value > policy.proc.max_timeout.value {
        policy.proc.timeout = policy.proc.max_timeout.clone();
    }
}

/// Every field must be in the built-in file; a test loads it, so a missing one never ships.
fn start(file: &PolicyFile) -> Result<ResolvedPolicy, Vec<Diagnostic>> {
    fn sourced<T: Clone>(written: &Option<Written<T>>, key: &str) -> Result<Sourced<T>, Vec<Diagnostic>> {
        match written {
            Some(written) => {
                Ok(Sourced { value: written.value.clone(), origin: Origin { layer: Layer::Default, place: None } })
            }
            None => Err(vec![Diagnostic::error("policy::defaults", format!("the built-in defaults lack `{key}`"))]),
        }
    }
    let mut policy = ResolvedPolicy {
        backend: BackendPolicy { choice: sourced(&file.backend, "backend")?, fallback: Vec::new(), runtime: None },
        image: None,
        image_pull: sourced(&file.image_pull, "image.pull")?,
        cache: Vec::new(),
        fs: FsPolicy {
            workspace: sourced(&file.fs.workspace, "fs.workspace.path")?,
            mode: sourced(&file.fs.mode, "fs.workspace.mode")?,
            source: sourced(&file.fs.source, "fs.workspace.source")?,
            mounts: Vec::new(),
            deny: Vec::new(),
            protect: Vec::new(),
            size: sourced(&file.fs.size, "fs.size")?,
        },
        net: NetPolicy {
            mode: sourced(&file.net.mode, "net.mode")?,
            allow: Vec::new(),
            deny: Vec::new(),
            localhost: Vec::new(),
            unix: Vec::new(),
            budget: sourced(&file.net.budget, "net.budget")?,
            unknown: sourced(&file.net.unknown, "net.unknown")?,
            upstream: None,
        },
        credentials: std::collections::BTreeMap::new(),
        proc: ProcPolicy {
            user: sourced(&file.proc.user, "proc.user")?,
            cpus: sourced(&file.proc.cpus, "proc.cpus")?,
            memory: sourced(&file.proc.memory, "proc.memory")?,
            processes: sourced(&file.proc.processes, "proc.processes")?,
            limits: sourced(&file.proc.limits, "proc.limits")?,
            timeout: sourced(&file.proc.timeout, "proc.timeout")?,
            max_timeout: sourced(&file.proc.max_timeout, "proc.max_timeout")?,
            grace: sourced(&file.proc.grace, "proc.grace")?,
            output: sourced(&file.proc.output, "proc.output")?,
            file_size: sourced(&file.proc.file_size, "proc.file_size")?,
            open_files: sourced(&file.proc.open_files, "proc.open_files")?,
            env: EnvPolicy { pass: Vec::new(), set: std::collections::BTreeMap::new() },
        },
        validate: ValidatePolicy {
            level: sourced(&file.validate.level, "validate")?,
            commands: Vec::new(),
            modules: Vec::new(),
        },
        commands: Vec::new(),
        tools: ToolsPolicy { allow: Vec::new(), own: None },
        overrides: OverridesPolicy { grantable: Vec::new() },
    };
    apply(&mut policy, &Layer::Default, file);
    Ok(policy)
}

/// Where a value of `layer` came from. What is built in has no file that a person could open.
pub(crate) fn source<T: Clone>(layer: &Layer, written: &Written<T>) -> Sourced<T> {
    let place = match layer {
        Layer::Default | Layer::Preset(_) => None,
        _ => Some(written.place.clone()),
    };
    Sourced { value: written.value.clone(), origin: Origin { layer: layer.clone(), place } }
}

fn apply(policy: &mut ResolvedPolicy, layer: &Layer, file: &PolicyFile) {
    replace(&mut policy.backend.choice, &file.backend, layer);
    if let Some(fallback) = &file.fallback {
        policy.backend.fallback = fallback.iter().map(|written| source(layer, written)).collect();
    }
    if let Some(written) = &file.runtime {
        policy.backend.runtime = Some(source(layer, written));
    }
    if let Some(written) = &file.require_isolation {
        if !policy.backend.choice.value.isolates() {
            policy.backend.choice = source(layer, written).map(|()| BackendChoice::Auto);
        }
        policy.backend.fallback.retain(|kind| kind.value.isolates());
    }
    if let Some(written) = &file.image {
        policy.image = Some(source(layer, written));
    }
    replace(&mut policy.image_pull, &file.image_pull, layer);
    unite(&mut policy.cache, &file.cache, layer);

    replace(&mut policy.fs.workspace, &file.fs.workspace, layer);
    replace(&mut policy.fs.mode, &file.fs.mode, layer);
    replace(&mut policy.fs.source, &file.fs.source, layer);
    replace(&mut policy.fs.size, &file.fs.size, layer);
    for written in file.fs.mounts.iter().flatten() {
        policy.fs.mounts.retain(|mount| mount.value.target() != written.value.target());
        policy.fs.mounts.push(source(layer, written));
    }
    unite(&mut policy.fs.deny, &file.fs.deny, layer);
    unite(&mut policy.fs.protect, &file.fs.protect, layer);

    replace(&mut policy.net.mode, &file.net.mode, layer);
    unite(&mut policy.net.allow, &file.net.allow, layer);
    unite(&mut policy.net.deny, &file.net.deny, layer);
    unite(&mut policy.net.localhost, &file.net.localhost, layer);
    unite(&mut policy.net.unix, &file.net.unix, layer);
    replace(&mut policy.net.budget, &file.net.budget, layer);
    // A person who wants to be left alone is not asked because a project says so.
    let said_no = policy.net.unknown.origin.layer == Layer::User && policy.net.unknown.value == UnknownHosts::Deny;
    if !(said_no && *layer == Layer::Project) {
        replace(&mut policy.net.unknown, &file.net.unknown, layer);
    }
    if let Some(written) = &file.net.upstream {
        policy.net.upstream = Some(source(layer, written));
    }
    for (name, written) in file.credentials.iter().flatten() {
        policy.credentials.insert(name.clone(), source(layer, written));
    }

    let proc = &mut policy.proc;
    replace(&mut proc.user, &file.proc.user, layer);
    replace(&mut proc.cpus, &file.proc.cpus, layer);
    replace(&mut proc.memory, &file.proc.memory, layer);
    replace(&mut proc.processes, &file.proc.processes, layer);
    replace(&mut proc.limits, &file.proc.limits, layer);
    replace(&mut proc.timeout, &file.proc.timeout, layer);
    replace(&mut proc.max_timeout, &file.proc.max_timeout, layer);
    replace(&mut proc.grace, &file.proc.grace, layer);
    replace(&mut proc.output, &file.proc.output, layer);
    replace(&mut proc.file_size, &file.proc.file_size, layer);
    replace(&mut proc.open_files, &file.proc.open_files, layer);
    unite(&mut proc.env.pass, &file.proc.pass, layer);
    for (name, written) in file.proc.set.iter().flatten() {
        proc.env.set.insert(name.clone(), source(layer, written));
    }

    let validate = &mut policy.validate;
    replace(&mut validate.level, &file.validate.level, layer);
    unite(&mut validate.commands, &file.validate.commands, layer);
    unite(&mut validate.modules, &file.validate.modules, layer);
    unite(&mut policy.commands, &file.commands, layer);
    unite(&mut policy.tools.allow, &file.tools, layer);
    // The built-in file has every key; it limits nobody.
    if file.tools.is_some() && *layer != Layer::Default {
        unite(policy.tools.own.get_or_insert_default(), &file.tools, layer);
    }
    unite(&mut policy.overrides.grantable, &file.grantable, layer);
}

fn replace<T: Clone>(slot: &mut Sourced<T>, written: &Option<Written<T>>, layer: &Layer) {
    if let Some(written) = written {
        *slot = source(layer, written);
    }
}

/// Adds what is not there yet, so that the first layer to name a value stays its origin.
pub(crate) fn unite<T: Clone + PartialEq>(
    slot: &mut Vec<Sourced<T>>,
    written: &Option<Vec<Written<T>>>,
    layer: &Layer,
) {
    for entry in written.iter().flatten() {
        if !slot.iter().any(|known| known.value == entry.value) {
            slot.push(source(layer, entry));
        }
    }
}
