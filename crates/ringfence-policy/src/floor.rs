//! The operator's floor. Only what the operator states holds anyone; what is stated can only make the policy narrower.

use crate::demand::{hold_demands, shut_by, unbound};
use crate::file::{PolicyFile, Written};
use crate::host::NetRule;
use crate::order::{backend_rank, choice_rank, meet_mount, mode_rank};
use crate::policy::{BackendChoice, Layer, Mount, NetMode, NetPolicy, Origin, ResolvedPolicy, Sourced, UnknownHosts};
use crate::validate::ValidateLevel;
use crate::variable::covers_pass;

/// Narrows `policy` to what `file` permits. `origin` replaces the places of a file that nobody can open. `earlier` is the policy as it
/// was before this operator spoke: of what has no order, such as an image, the first operator's word stays.
pub(crate) fn hold_floor(
    policy: &mut ResolvedPolicy,
    file: &PolicyFile,
    origin: Option<&Origin>,
    earlier: &ResolvedPolicy,
) {
    let floor = Floor { origin };
    floor.hold_backend(policy, file, earlier);
    if let Some(image) = file.image.as_ref().filter(|_| !is_an_operators(earlier.image.as_ref())) {
        policy.image = Some(floor.source(image));
    }
    floor.lower(&mut policy.image_pull, &file.image_pull);
    if let Some(cache) = &file.cache {
        floor.intersect(&mut policy.cache, cache, same);
    }
    if let Some(workspace) = file.fs.workspace.as_ref().filter(|_| !is_an_operators(Some(&earlier.fs.workspace))) {
        policy.fs.workspace = floor.source(workspace);
    }
    if let Some(mode) = &file.fs.mode
        && mode_rank(mode.value) < mode_rank(policy.fs.mode.value)
    {
        policy.fs.mode = floor.source(mode);
    }
    floor.lower(&mut policy.fs.source, &file.fs.source);
    if let Some(mounts) = &file.fs.mounts {
        floor.intersect(&mut policy.fs.mounts, mounts, |mine: &Mount, theirs: &Mount| meet_mount(mine, theirs));
    }
    floor.unite(&mut policy.fs.deny, &file.fs.deny);
    floor.unite(&mut policy.fs.protect, &file.fs.protect);
    floor.lower(&mut policy.fs.size, &file.fs.size);
    floor.hold_net(policy, file);
    // A definition permits nothing by itself; rules do. Of two with one name the operator's is the one, and of two operators'
    // the first: a file that was added later says nothing about the machine's secrets.
    for (name, written) in file.credentials.iter().flatten() {
        if !is_an_operators(policy.credentials.get(name)) {
            policy.credentials.insert(name.clone(), floor.source(written));
        }
    }

    let proc = &mut policy.proc;
    if let Some(user) = file.proc.user.as_ref().filter(|_| !is_an_operators(Some(&earlier.proc.user))) {
        proc.user = floor.source(user);
    }
    floor.lower(&mut proc.cpus, &file.proc.cpus);
    floor.lower(&mut proc.memory, &file.proc.memory);
    floor.lower(&mut proc.processes, &file.proc.processes);
    floor.lower(&mut proc.limits, &file.proc.limits);
    floor.lower(&mut proc.timeout, &file.proc.timeout);
    floor.lower(&mut proc.max_timeout, &file.proc.max_timeout);
    floor.lower(&mut proc.grace, &file.proc.grace);
    floor.lower(&mut proc.output, &file.proc.output);
    floor.lower(&mut proc.file_size, &file.proc.file_size);
    floor.lower(&mut proc.open_files, &file.proc.open_files);
    if let Some(pass) = &file.proc.pass {
        floor.intersect(&mut proc.env.pass, pass, |mine: &String, theirs: &String| {
            if covers_pass(theirs, mine) {
                Some(mine.clone())
            } else {
                covers_pass(mine, theirs).then(|| theirs.clone())
            }
        });
    }
    for (name, written) in file.proc.set.iter().flatten() {
        if !is_an_operators(earlier.proc.env.set.get(name)) {
            proc.env.set.insert(name.clone(), floor.source(written));
        }
    }
    floor.hold_validate(policy, file);
    for written in file.commands.iter().flatten() {
        policy.commands.push(floor.source(written));
    }
    if let Some(tools) = &file.tools {
        floor.intersect(&mut policy.tools.allow, tools, same);
        match &mut policy.tools.own {
            Some(own) => floor.intersect(own, tools, same),
            // Nobody named any, which means all: what both permit is the operator's list.
            None => policy.tools.own = Some(tools.iter().map(|written| floor.source(written)).collect()),
        }
    }
    if let Some(grantable) = &file.grantable {
        floor.intersect(&mut policy.overrides.grantable, grantable, same);
    }
}

/// Whether an operator has said it.
fn is_an_operators<T>(known: Option<&Sourced<T>>) -> bool {
    known.is_some_and(|known| known.origin.layer == Layer::Operator)
}

fn same<T: PartialEq + Clone>(mine: &T, theirs: &T) -> Option<T> {
    (mine == theirs).then(|| mine.clone())
}

struct Floor<'o> {
    origin: Option<&'o Origin>,
}

impl Floor<'_> {
    fn source<T: Clone>(&self, written: &Written<T>) -> Sourced<T> {
        let origin = match self.origin {
            Some(origin) => origin.clone(),
            None => Origin { layer: Layer::Operator, place: Some(written.place.clone()) },
        };
        Sourced { value: written.value.clone(), origin }
    }

    fn lower<T: Clone + PartialOrd>(&self, slot: &mut Sourced<T>, written: &Option<Written<T>>) {
        if let Some(written) = written
            && written.value < slot.value
        {
            *slot = self.source(written);
        }
    }

    fn lower_to<T: PartialOrd>(&self, slot: &mut Sourced<T>, value: T, origin: Origin) {
        if value < slot.value {
            *slot = Sourced { value, origin };
        }
    }

    fn unite<T: Clone + PartialEq>(&self, slot: &mut Vec<Sourced<T>>, written: &Option<Vec<Written<T>>>) {
        for entry in written.iter().flatten() {
            if !slot.iter().any(|known| known.value == entry.value) {
                slot.push(self.source(entry));
            }
        }
    }

    /// Keeps what both permit. What the operator narrowed has the operator as its origin.
    fn intersect<T: Clone + PartialEq>(
        &self,
        slot: &mut Vec<Sourced<T>>,
        written: &[Written<T>],
        meet: impl Fn(&T, &T) -> Option<T>,
    ) {
        let mut kept: Vec<Sourced<T>> = Vec::new();
        let mut keep = |value: T, origin: Origin| {
            if !kept.iter().any(|known| known.value == value) {
                kept.push(Sourced { value, origin });
            }
        };
        for mine in &*slot {
            let common: Vec<(T, &Written<T>)> = written
                .iter()
                .filter_map(|theirs| meet(&mine.value, &theirs.value).map(|value| (value, theirs)))
                .collect();
            if common.iter().any(|(value, _)| *value == mine.value) {
                keep(mine.value.clone(), mine.origin.clone());
            } else {
                common.into_iter().for_each(|(value, theirs)| keep(value, self.source(theirs).origin));
            }
        }
        *slot = kept;
    }

    fn hold_backend(&self, policy: &mut ResolvedPolicy, file: &PolicyFile, earlier: &ResolvedPolicy) {
        // Which of two runtimes is the stronger nobody can tell from their names, so the operator's is the one, and of two operators' the first.
        let runtime = file.runtime.as_ref().filter(|_| !is_an_operators(earlier.backend.runtime.as_ref()));
        if let Some(runtime) = runtime {
            policy.backend.runtime = Some(self.source(runtime));
        }
        if let Some(wanted) = &file.backend {
            let (floor, now) = (choice_rank(wanted.value), choice_rank(policy.backend.choice.value));
            let other_kind = floor == now
                && wanted.value != BackendChoice::Auto
                && wanted.value != policy.backend.choice.value
                && !is_an_operators(Some(&earlier.backend.choice));
            // Said by both, it is the operator's: another operator's file does not change it.
            let same_kind = wanted.value != BackendChoice::Auto && wanted.value == policy.backend.choice.value;
            if now < floor || other_kind || same_kind {
                policy.backend.choice = self.source(wanted);
            }
        }
        // Who lists what may stand in has said it all; otherwise nothing weaker than the wanted wall may.
        match (&file.fallback, &file.backend) {
            (Some(permitted), _) => {
                policy.backend.fallback.retain(|kind| permitted.iter().any(|it| it.value == kind.value));
            }
            (None, Some(wanted)) => policy.backend.fallback.retain(|kind| match wanted.value {
                BackendChoice::Auto => kind.value.isolates(),
                BackendChoice::Kind(named) => {
                    kind.value == named || backend_rank(kind.value) > choice_rank(wanted.value)
                }
            }),
            (None, None) => {}
        }
    }

    /// Where only listed commands run, both lists have to name one. Where everything did, the operator's list is the list.
    fn hold_validate(&self, policy: &mut ResolvedPolicy, file: &PolicyFile) {
        let was = policy.validate.level.value;
        self.lower(&mut policy.validate.level, &file.validate.level);
        // Who demands the same demands it too: what others allow does not silence it then.
        if let Some(written) = file.validate.level.as_ref().filter(|written| written.value == was) {
            policy.validate.level = self.source(written);
        }
        let lists = [
            (&mut policy.validate.commands, &file.validate.commands),
            (&mut policy.validate.modules, &file.validate.modules),
        ];
        for (slot, written) in lists {
            let Some(written) = written else { continue };
            match was {
                ValidateLevel::Strict => self.intersect(slot, written, same),
                ValidateLevel::Standard | ValidateLevel::Warn | ValidateLevel::Off => {
                    *slot = written.iter().map(|name| self.source(name)).collect();
                }
            }
        }
    }

    fn hold_net(&self, policy: &mut ResolvedPolicy, file: &PolicyFile) {
        let net = &mut policy.net;
        let was = net.mode.value;
        if let Some(mode) = &file.net.mode
            && mode.value < was
        {
            net.mode = self.source(mode);
        }
        let says_open = file.net.mode.as_ref().is_some_and(|mode| mode.value == NetMode::Open);
        if let Some(allow) = &file.net.allow {
            let operator = || Origin { layer: Layer::Operator, place: None };
            let origin = allow.first().map_or_else(operator, |first| self.source(first).origin);
            if !says_open {
                self.hold_allow(net, allow, was, &origin);
                // An operator who lists hosts means "only these", also without saying `allowlist`.
                if net.mode.value == NetMode::Open {
                    net.mode = Sourced { value: NetMode::Allowlist, origin };
                }
            } else if net.mode.value == NetMode::Allowlist {
                // Those below may list fewer hosts than all, and are held there to what the operator demands.
                hold_all(net, allow.iter().map(|rule| self.source(rule)).collect(), &origin);
            }
        }
        self.unite(&mut net.deny, &file.net.deny);
        if let Some(localhost) = &file.net.localhost {
            self.intersect(&mut net.localhost, localhost, same);
        }
        if let Some(unix) = &file.net.unix {
            self.intersect(&mut net.unix, unix, same);
        }
        if let Some(budget) = &file.net.budget {
            let both = net.budget.value.meet(&budget.value);
            if both != net.budget.value {
                net.budget = self.source(budget).map(|_| both);
            }
        }
        self.lower(&mut net.unknown, &file.net.unknown);
        if let Some(first) = file.net.allow.as_ref().filter(|_| !says_open && file.net.unknown.is_none()) {
            // Nor may somebody be asked for more than these, unless the operator says so.
            let operator = || Origin { layer: Layer::Operator, place: None };
            let origin = first.first().map_or_else(operator, |first| self.source(first).origin);
            self.lower_to(&mut net.unknown, UnknownHosts::Deny, origin);
        }
        match &file.net.upstream {
            // The machine's operator has said it, and a file that was added later does not change that.
            _ if is_an_operators(net.upstream.as_ref()) => {}
            Some(upstream) => net.upstream = Some(self.source(upstream)),
            // Whoever chooses the proxy that everything goes through chooses which hosts are reached.
            None if file.net.allow.is_some() || file.net.deny.is_some() => net.upstream = None,
            None => {}
        }
    }
    /// Keeps the hosts that both permit, with what either demands of them.
    fn hold_allow(&self, net: &mut NetPolicy, allow: &[Written<NetRule>], was: NetMode, operator: &Origin) {
        let mut demanding = net.allow.clone();
        demanding.extend(allow.iter().map(|rule| self.source(rule)));
        if was == NetMode::Open {
            // Everything is reached, but with no secret that nobody below has.
            let mut free: Vec<Sourced<NetRule>> = Vec::new();
            for rule in allow.iter().filter(|rule| rule.value.credential.is_none()) {
                free.push(self.source(rule));
            }
            self.intersect(&mut net.allow, allow, |mine: &NetRule, theirs: &NetRule| {
                mine.meet(theirs).filter(|both| both.credential.is_some())
            });
            net.allow.extend(free);
        } else {
            self.intersect(&mut net.allow, allow, NetRule::meet);
        }
        hold_all(net, demanding, operator);
    }
}

/// Holds the hosts that are listed to all that `demanding` demands of them.
fn hold_all(net: &mut NetPolicy, mut demanding: Vec<Sourced<NetRule>>, operator: &Origin) {
    // A credential is neither added nor left out. Where only one side binds one, there is nothing that both permit.
    let shut: Vec<Sourced<NetRule>> = unbound(&net.allow, &demanding)
        .iter()
        .map(|it| Sourced { value: it.all(), origin: shut_by(it, operator) })
        .collect();
    for rule in shut {
        if !net.deny.iter().any(|known| known.value.covers(&rule.value)) {
            net.deny.push(rule);
        }
    }
    demanding.retain(|rule| !net.deny.iter().any(|denied| denied.value.covers(&only_where(&rule.value))));
    hold_demands(&mut net.allow, &demanding);
}

/// The hosts and ports of a rule, as a rule that denies would name them.
fn only_where(rule: &NetRule) -> NetRule {
    NetRule { ports: rule.ports.clone(), ..NetRule::new(rule.host.clone()) }
}
