//! Container engines and clusters: rights that they give away, and the command within.

use super::options::{Style, Words};
use super::{Handler, Run};
use crate::analysis::{Contact, Fact, Flow, Privilege};
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "docker" | "podman" | "nerdctl" | "finch" | "buildah" => docker,
        "kubectl" | "oc" => kubectl,
        "docker-compose" | "podman-compose" => compose,
        "lxc" | "lxc-attach" | "incus" | "machinectl" | "ctr" | "crictl" | "runc" | "crun" => engine,
        _ => return None,
    })
}

const VALUES: &[&str] = &[
    "-v",
    "--volume",
    "-e",
    "--env",
    "-p",
    "--publish",
    "--name",
    "-w",
    "--workdir",
    "-u",
    "--user",
    "--network",
    "--net",
    "--mount",
    "--entrypoint",
    "-l",
    "--label",
    "--env-file",
    "-h",
    "--hostname",
    "--cap-add",
    "--cap-drop",
    "--security-opt",
    "--pid",
    "--ipc",
    "--uts",
    "--userns",
    "--device",
    "--memory",
    "-m",
    "--cpus",
    "--restart",
    "--platform",
    "--add-host",
    "--dns",
    "--tmpfs",
    "--ulimit",
    "--gpus",
    "--runtime",
    "--cgroupns",
    "-f",
    "--file",
    "-t",
    "--tag",
    "--build-arg",
    "-c",
    "--context",
    "-H",
    "--host",
    "--log-level",
    "--volumes-from",
    "--link",
    "--expose",
    "--shm-size",
    "--target",
    "-o",
    "--output",
    "--format",
    "--filter",
    "--since",
    "--tail",
    "-n",
    "--cidfile",
    "--group-add",
    "--sysctl",
    "--ip",
];

/// Flags that take the walls of a container away.
fn rights(run: &mut Run<'_, '_>, words: &Words) {
    let span = run.span;
    let shares = words
        .values(&["--pid", "--ipc", "--net", "--network", "--uts", "--userns", "--cgroupns"])
        .any(|value| value.known() == Some("host"));
    let open = words
        .values(&["--security-opt"])
        .any(|value| value.text.known_start().contains("unconfined") || value.text.known_start().contains("disable"));
    let strong = words.values(&["--cap-add"]).any(|value| {
        matches!(
            value.known(),
            Some("ALL" | "SYS_ADMIN" | "SYS_PTRACE" | "SYS_MODULE" | "NET_ADMIN" | "CAP_SYS_ADMIN" | "DAC_READ_SEARCH")
        )
    });
    if words.has(&["--privileged"]) || shares || open || strong || words.value(&["--device"]).is_some() {
        run.fact(span, Fact::Privilege { privilege: Privilege::ContainerEngine });
    }
    for mount in words.values(&["-v", "--volume", "--mount"]).cloned().collect::<Vec<_>>() {
        let mut source = mount.clone();
        if let Some(known) = mount.known() {
            let path = known
                .split(',')
                .find_map(|part| part.strip_prefix("source=").or_else(|| part.strip_prefix("src=")))
                .unwrap_or_else(|| known.split(':').next().unwrap_or(known));
            source.text = Text::known(path);
        }
        let start = source.text.known_start().to_owned();
        if !start.starts_with(['/', '.', '~']) {
            continue;
        }
        // What is mounted may be read and written from within.
        let path = run.reading.scope.resolve(&source.text);
        run.fact(mount.span, Fact::Reads { path: path.clone() });
        if !mount.known().is_some_and(|known| known.ends_with(":ro") || known.contains("readonly")) {
            run.fact(mount.span, Fact::Writes { path });
        }
        if start == "/"
            || start.contains("docker.sock")
            || start.contains("containerd.sock")
            || start.contains("podman.sock")
        {
            run.fact(mount.span, Fact::Privilege { privilege: Privilege::ContainerEngine });
        }
    }
}

fn docker(run: &mut Run<'_, '_>, _name: &str) {
    let global = run.words(&["-H", "--host", "-c", "--context", "--log-level", "--config", "-l"], Style::Leading);
    if let Some(host) = global.value(&["-H", "--host"]).cloned() {
        run.contacts(host.text.clone(), host.span, Contact::Connect, Vec::new());
    }
    let mut operands = global.operands.into_iter();
    let mut subcommand = operands.next().and_then(|word| word.known().map(str::to_owned)).unwrap_or_default();
    let mut rest: Vec<Argument> = operands.collect();
    if matches!(subcommand.as_str(), "container" | "image" | "builder" | "buildx" | "system" | "volume" | "network")
        && !rest.is_empty()
    {
        let first = rest.remove(0);
        let inner = first.known().unwrap_or_default().to_owned();
        subcommand = if inner == "prune" { format!("{subcommand} prune") } else { inner };
    }
    let takes = |option: &str| VALUES.contains(&option).then_some(super::Role::Nothing);
    let span = run.span;
    match subcommand.as_str() {
        "run" | "create" | "exec" => {
            let words = super::words(
                &rest,
                // `-t` and `-i` are flags of these.
                |option| if matches!(option, "-t" | "-o" | "-f" | "-n" | "-c") { None } else { takes(option) },
                Style::Leading,
            );
            rights(run, &words);
            let mut inner = words.operands.clone();
            if !inner.is_empty() {
                let image = inner.remove(0);
                if subcommand != "exec" {
                    run.contacts(image.text.clone(), image.span, Contact::Fetch, Vec::new());
                }
            }
            if let Some(entry) = words.value(&["--entrypoint"]) {
                inner.insert(0, entry.clone());
            }
            // Behind the engine's wall the paths are others; what is started is said all the same.
            let outer = run.reading.scope.clone();
            if inner.first().and_then(Argument::known).is_some_and(|name| super::is_known(super::bare_name(name))) {
                run.output = run.start(inner);
            }
            run.reading.scope = outer;
        }
        "pull" | "login" | "search" => {
            let place = rest.iter().rfind(|word| !word.text.known_start().starts_with('-')).cloned();
            run.contacts(
                place.map_or_else(|| Text::known("registry"), |place| place.text),
                span,
                Contact::Fetch,
                Vec::new(),
            );
        }
        "push" => {
            let place = rest.iter().rfind(|word| !word.text.known_start().starts_with('-')).cloned();
            run.contacts(
                place.map_or_else(|| Text::known("registry"), |place| place.text),
                span,
                Contact::Send,
                Vec::new(),
            );
        }
        "cp" => {
            let words = super::words(&rest, takes, Style::Usual);
            if let [source, target, ..] = words.operands.as_slice() {
                let (source, target) = (source.clone(), target.clone());
                if !source.text.known_start().contains(':') {
                    run.reads(&source);
                }
                if !target.text.known_start().contains(':') {
                    run.writes(&target, Stream::from(vec![Flow::Unknown]));
                }
            }
        }
        "compose" => compose_command(run, rest),
        // What a container was given to know is a part of it.
        "inspect" => run.output.add(Flow::Environment),
        "build" => {
            let words = super::words(&rest, takes, Style::Usual);
            for folder in &words.operands {
                run.reads(folder);
            }
        }
        _ => {}
    }
    run.output.add(Flow::Unknown);
}

fn compose(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    compose_command(run, rest);
}

/// `compose exec SERVICE COMMAND` and `compose run SERVICE COMMAND`.
fn compose_command(run: &mut Run<'_, '_>, rest: Vec<Argument>) {
    const GLOBAL: &[&str] =
        &["-f", "--file", "-p", "--project-name", "--profile", "--env-file", "--project-directory", "--parallel"];
    let nothing = |takes: &[&str], option: &str| takes.contains(&option).then_some(super::Role::Nothing);
    let mut words = super::words(&rest, |option| nothing(GLOBAL, option), Style::Leading).operands;
    if words.is_empty() || !matches!(words.remove(0).known(), Some("exec" | "run")) {
        return;
    }
    // `-T`, `-d` and `-i` are flags of these.
    let takes = |option: &str| if matches!(option, "-t" | "-f" | "-c" | "-n") { None } else { nothing(VALUES, option) };
    let words = super::words(&words, takes, Style::Leading);
    rights(run, &words);
    let inner: Vec<Argument> = words.operands.into_iter().skip(1).collect();
    let outer = run.reading.scope.clone();
    if inner.first().and_then(Argument::known).is_some_and(|name| super::is_known(super::bare_name(name))) {
        run.output = run.start(inner);
    }
    run.reading.scope = outer;
}

fn kubectl(run: &mut Run<'_, '_>, _name: &str) {
    let takes = [
        "-n",
        "--namespace",
        "--context",
        "--kubeconfig",
        "-c",
        "--container",
        "-f",
        "--filename",
        "-l",
        "--selector",
        "-o",
        "--output",
        "--image",
        "-s",
        "--server",
        "--token",
        "--as",
    ];
    let rest = run.rest();
    let split = rest.iter().position(|word| word.known() == Some("--"));
    let front = rest.get(..split.unwrap_or(rest.len())).unwrap_or_default();
    let words = super::words(front, |option| takes.contains(&option).then_some(super::Role::Nothing), Style::Usual);
    let span = run.span;
    let contact = match words.operands.first().and_then(Argument::known) {
        Some("exec" | "attach" | "debug" | "run") => Contact::Shell,
        Some("get" | "describe" | "logs" | "top" | "explain" | "version" | "api-resources" | "cluster-info") => {
            Contact::Fetch
        }
        Some("config") => return,
        _ => Contact::Send,
    };
    let sends = run.sent();
    run.contacts(Text::known("cluster"), span, contact, sends);
    for file in words.values(&["-f", "--filename"]).cloned().collect::<Vec<_>>() {
        if file.text.known_start().starts_with("http") {
            run.contacts(file.text.clone(), file.span, Contact::Fetch, Vec::new());
        } else {
            run.reads(&file);
        }
    }
    run.output = Stream::from(vec![Flow::Network]);
    if let Some(at) = split {
        let outer = run.reading.scope.clone();
        let written = run.start(rest.into_iter().skip(at + 1).collect());
        written.flows.into_iter().for_each(|flow| run.output.add(flow));
        run.reading.scope = outer;
    }
}

fn engine(run: &mut Run<'_, '_>, _name: &str) {
    let span = run.span;
    let rest = run.rest();
    if matches!(
        rest.first().and_then(Argument::known),
        Some("exec" | "run" | "attach" | "shell" | "launch" | "init" | "-n")
    ) {
        run.fact(span, Fact::Privilege { privilege: Privilege::ContainerEngine });
        if let Some(at) = rest.iter().position(|word| word.known() == Some("--")) {
            run.start(rest.into_iter().skip(at + 1).collect());
        }
    }
}

/// `kubectl apply -f -` and its kin carry out what they are given: from the network, that is code from there.
pub(super) fn obey_input(run: &mut Run<'_, '_>, name: &str) {
    super::composed::orders(run, name);
    super::plays::orders(run, name);
    super::unread::sources(run, name);
    let obeys = matches!(
        name,
        "kubectl" | "oc" | "docker" | "docker-compose" | "podman" | "podman-compose" | "ansible-playbook" | "helm"
    );
    if !obeys || !run.input.flows.contains(&Flow::Network) {
        return;
    }
    let words = run.rest();
    let dash = |word: &Argument| matches!(word.known(), Some("-" | "/dev/stdin" | "-f-" | "--filename=-" | "--file=-"));
    if let Some(word) = words.iter().find(|word| dash(word)) {
        let from = run.input.flows.clone();
        run.fact(word.span, Fact::Executes { from });
    }
}
