//! Programs whose output is made to be evaluated: they set up a shell, and ask nobody else for the words.

use super::{Handler, Run};
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "ssh-agent" | "pyenv" | "rbenv" | "nodenv" | "goenv" | "jenv" | "direnv" | "starship" | "zoxide" | "fnm"
        | "mise" | "dircolors" | "keychain" | "minikube" | "docker-machine" | "lesspipe" | "opam" | "luarocks"
        | "resize" | "thefuck" | "fasd" | "atuin" | "gdircolors" | "hub" => own_words,
        _ => return None,
    })
}

/// Programs that write what a shell needs to complete their words.
const COMPLETE: &str = "argocd cilium deno docker doctl eksctl flux gh glab golangci-lint helm hugo istioctl just k3d kind kubectl \
    kustomize mise nerdctl npm oc op pdm pip pip3 pnpm podman poetry ruff rustup skaffold stern task tilt uv uvx velero yq";

fn own_words(run: &mut Run<'_, '_>, name: &str) {
    if let Some(entry) = run.subcommand(name) {
        run.by_the_book(entry);
    }
    run.output = Stream::literal(Text::default());
}

/// Some programs do other things as well, and write such words where they are asked for them.
pub(super) fn set_up_a_shell(run: &mut Run<'_, '_>) {
    let mut words = run.arguments.iter().filter_map(Argument::known);
    let Some(name) = words.next().map(super::bare_name) else { return };
    let asked = match (name, words.find(|word| !word.starts_with('-'))) {
        ("conda" | "mamba" | "micromamba", Some(verb)) => verb.starts_with("shell"),
        ("mise" | "rtx", Some("activate" | "env" | "hook-env")) | ("brew", Some("shellenv")) => true,
        (name, Some("completion" | "completions" | "generate-shell-completion")) => {
            COMPLETE.split_whitespace().any(|known| known == name)
        }
        _ => false,
    };
    if asked {
        run.output = Stream::literal(Text::default());
    }
}
