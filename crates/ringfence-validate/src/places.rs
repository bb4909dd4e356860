//! Places that are known by name: secrets, files that are executed later, traces, sockets, devices.

use crate::glob;
use crate::path::PathClass;

/// Whether a part of a path, which may be a pattern, can be `name`.
pub fn fits(part: &str, name: &str) -> bool {
    if !part.contains(['*', '?', '[']) {
        return part == name;
    }
    // A pattern takes names that start with a dot only if it does so itself.
    (part.starts_with('.') || !name.starts_with('.')) && glob::matches(part, name)
}

/// What a list says of a path: parts from the end of a path, `*` for any one part, `**` at the end for what lies below.
fn listed(parts: &[&str], list: &[&str]) -> bool {
    list.iter().any(|line| {
        let below = line.strip_suffix("/**");
        let wanted: Vec<&str> = below.unwrap_or(line).split('/').filter(|part| !part.is_empty()).collect();
        let at_root = line.starts_with('/');
        let starts = if at_root { 0..1 } else { 0..parts.len() };
        starts.into_iter().any(|start| {
            let Some(rest) = parts.get(start..) else { return false };
            let enough = if below.is_some() { rest.len() >= wanted.len() } else { rest.len() == wanted.len() };
            // A lone star could be anything, and says nothing.
            let telling =
                rest.iter().zip(&wanted).any(|(part, name)| tells(part, name)) || tell_together(rest, &wanted);
            enough && telling && rest.iter().zip(&wanted).all(|(part, name)| one(part, name))
        })
    })
}

/// Whether a part names something: an ending behind a star, as in `*.json`, does only where the list itself goes by the ending.
fn tells(part: &str, name: &str) -> bool {
    let letters = |text: &str| text.chars().filter(|letter| letter.is_alphanumeric()).count();
    let is_pattern = part.contains(['*', '?', '[']);
    let stem = match part.rfind('.') {
        Some(at) if at > 0 && is_pattern && !name.starts_with('*') => part.get(..at).unwrap_or(part),
        _ => part,
    };
    letters(stem) >= 3
}

/// Whether several parts that each say little say enough between them: `.s*/id_*`.
fn tell_together(parts: &[&str], wanted: &[&str]) -> bool {
    let letters = |part: &str| part.chars().filter(|letter| letter.is_alphanumeric()).count();
    let said: Vec<usize> = parts.iter().zip(wanted).map(|(part, _)| letters(part)).collect();
    said.len() > 1 && said.iter().all(|count| *count > 0) && said.iter().sum::<usize>() >= 3
}

/// One part against one name of a list, either of which may be a pattern.
fn one(part: &str, name: &str) -> bool {
    match (name.contains('*'), part.contains(['*', '?', '['])) {
        (true, true) => fits(part, &name.replace('*', "x")),
        (true, false) => glob::matches(name, part),
        (false, _) => fits(part, name),
    }
}

const SECRETS: &[&str] = &[
    ".ssh",
    ".ssh/id_*",
    ".ssh/*_rsa",
    ".ssh/*_ed25519",
    ".ssh/*.pem",
    ".ssh/identity",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    "id_dsa",
    ".aws",
    ".aws/credentials",
    ".aws/config",
    ".aws/sso/**",
    ".azure/**",
    ".config/gcloud/**",
    ".kube/config",
    ".docker/config.json",
    ".gnupg/**",
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".pgpass",
    ".my.cnf",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".config/gh/hosts.yml",
    ".config/hub",
    ".vault-token",
    ".terraform.d/credentials.tfrc.json",
    ".password-store/**",
    ".local/share/keyrings/**",
    "Keychains/**",
    "Login Data",
    "cookies.sqlite",
    "Cookies",
    "key3.db",
    "key4.db",
    "logins.json",
    "wallet.dat",
    ".bitcoin/**",
    ".ethereum/**",
    ".electrum/**",
    ".config/solana/id.json",
    ".monero/**",
    ".mozilla/**",
    ".config/google-chrome/**",
    ".config/chromium/**",
    ".config/BraveSoftware/**",
    "Chrome/User Data/**",
    "Edge/User Data/**",
    "Brave-Browser/User Data/**",
    "Opera Software/**",
    "Application Support/Google/Chrome/**",
    "Application Support/BraveSoftware/**",
    "Application Support/Microsoft Edge/**",
    "Application Support/Firefox/**",
    "Mozilla/Firefox/Profiles/**",
    ".config/microsoft-edge/**",
    ".config/vivaldi/**",
    "snap/firefox/**",
    "Local Storage/leveldb/**",
    "Local Extension Settings/**",
    "Local State",
    "Web Data",
    "tdata/**",
    "exodus.wallet/**",
    "Exodus/**",
    "Electrum/wallets/**",
    "keystore/UTC--*",
    "Ledger Live/**",
    ".config/op/**",
    ".1password/**",
    ".config/Bitwarden/**",
    ".env",
    ".env.local",
    ".env.production",
    ".env.prod",
    ".env.development",
    ".env.staging",
    ".env.test",
    ".env.secret",
    ".env.secrets",
    ".env.backup",
    "secrets.yml",
    "secrets.yaml",
    "secrets.json",
    "secrets.toml",
    "credentials.json",
    "service-account*.json",
    "serviceaccount*.json",
    "client_secret*.json",
    "htpasswd",
    ".htpasswd",
    "*private*.pem",
    "*-key.pem",
    "*_key.pem",
    "privkey*.pem",
    "*.kdbx",
    "*.p12",
    "*.pfx",
    "*.keystore",
    "*.jks",
    "*.ppk",
    "*.ovpn",
    "*.key",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".config/anthropic/**",
    ".gemini/oauth_creds.json",
    ".config/rclone/rclone.conf",
    ".s3cfg",
    ".boto",
    ".databrickscfg",
    ".snowsql/config",
    ".dockercfg",
    ".rediscli_auth",
    ".msmtprc",
    ".fetchmailrc",
    ".smbcredentials",
    ".wgetrc",
    ".config/doctl/config.yaml",
    ".fly/config.yml",
    ".netlify/config.json",
    ".heroku/**",
    ".ansible/vault*",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/security/opasswd",
    "/etc/ssl/private/**",
    "/etc/ssh/ssh_host_*_key",
    "/etc/krb5.keytab",
    "/etc/sudoers",
    "/etc/sudoers.d/**",
    "/etc/NetworkManager/system-connections/**",
    "/etc/wireguard/**",
    "/etc/openvpn/**",
    "/etc/kubernetes/**",
    "/etc/rancher/k3s/k3s.yaml",
    "/etc/letsencrypt/**",
    "/etc/pki/tls/private/**",
    "/etc/master.passwd",
    "/var/run/secrets/**",
    "/run/secrets/**",
    "/var/lib/kubelet/**",
    "/var/lib/docker/**",
    "/proc/*/environ",
    "/proc/*/mem",
    "/proc/*/maps",
    "/proc/kcore",
    "/var/backups/shadow*",
];

/// A secret that has this name, where only its folder makes it one: `.aws/credentials` for `credentials`.
pub(crate) fn secret_called(name: &str) -> Option<&'static str> {
    let ends =
        |path: &&&str| path.rsplit_once('/').is_some_and(|(folder, last)| !folder.starts_with('/') && last == name);
    SECRETS.iter().find(ends).copied()
}

/// Looks like a secret and is none.
const NO_SECRETS: &[&str] =
    &["*.pub", ".ssh/known_hosts", ".ssh/config", "pubring.kbx", "*.example", "*.sample", "*.template", "*.crt"];

const EXECUTED_LATER: &[&str] = &[
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
    ".zlogin",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".config/fish/**",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".xsessionrc",
    ".inputrc",
    ".vimrc",
    ".vim/**",
    ".config/nvim/**",
    ".emacs",
    ".emacs.d/**",
    ".tmux.conf",
    ".screenrc",
    ".gdbinit",
    ".pythonrc",
    ".pdbrc",
    ".irbrc",
    ".pryrc",
    ".Rprofile",
    ".psqlrc",
    ".sqliterc",
    ".gitconfig",
    ".config/git/config",
    ".git/config",
    ".git/config.worktree",
    ".git/hooks/**",
    ".git/modules/**",
    ".git/info/attributes",
    ".gitmodules",
    "hooks/pre-commit",
    "hooks/post-checkout",
    ".ssh/authorized_keys",
    ".ssh/authorized_keys2",
    ".ssh/rc",
    ".ssh/config",
    ".ssh/environment",
    ".config/autostart/**",
    ".config/systemd/**",
    ".local/share/systemd/**",
    ".local/bin/**",
    ".config/environment.d/**",
    "LaunchAgents/**",
    "LaunchDaemons/**",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".claude/hooks/**",
    ".claude/commands/**",
    ".claude/agents/**",
    ".mcp.json",
    ".claude.json",
    ".cursor/mcp.json",
    ".cursor/hooks.json",
    ".cursor/rules/**",
    ".cursorrules",
    ".codex/config.toml",
    ".codex/hooks/**",
    ".gemini/settings.json",
    ".windsurf/**",
    ".kiro/**",
    ".roo/**",
    ".vscode/tasks.json",
    ".vscode/launch.json",
    ".vscode/settings.json",
    "Code/User/**",
    "Code - Insiders/User/**",
    "Code - OSS/User/**",
    "VSCodium/User/**",
    "Cursor/User/**",
    "Windsurf/User/**",
    ".vscode-server/data/Machine/settings.json",
    ".config/zed/**",
    ".zed/settings.json",
    ".zed/tasks.json",
    ".continue/**",
    ".aider.conf.yml",
    ".config/opencode/**",
    ".config/goose/**",
    ".qwen/settings.json",
    ".amazonq/**",
    ".claude/skills/**",
    ".claude/plugins/**",
    ".devcontainer/devcontainer.json",
    ".idea/workspace.xml",
    "discord_desktop_core/**",
    ".envrc",
    ".direnvrc",
    ".config/direnv/**",
    ".vscode/extensions/**",
    ".vscode-server/extensions/**",
    ".vscode-oss/extensions/**",
    ".cursor/extensions/**",
    ".windsurf/extensions/**",
    ".config/JetBrains/**",
    ".local/share/JetBrains/**",
    ".config/sublime-text/**",
    ".config/pip/**",
    ".pip/pip.conf",
    "/etc/pip.conf",
    ".config/uv/uv.toml",
    ".condarc",
    ".gemrc",
    ".m2/settings.xml",
    ".gradle/init.gradle",
    ".gradle/init.d/**",
    "/home/*/.cargo/config.toml",
    "/home/*/.cargo/config",
    "/home/*/.cargo/env",
    "/home/*/.gradle/gradle.properties",
    "/home/*/.yarnrc",
    "/home/*/.yarnrc.yml",
    "/home/*/.bunfig.toml",
    ".docker/cli-plugins/**",
    ".ipython/profile_default/startup/**",
    ".jupyter/**",
    ".config/tmux/**",
    ".config/kitty/**",
    ".config/i3/**",
    ".config/sway/**",
    ".config/hypr/**",
    ".config/powershell/**",
    ".config/nushell/**",
    ".config/starship.toml",
    ".config/git/attributes",
    ".config/plasma-workspace/**",
    ".kde/Autostart/**",
    ".local/share/applications/**",
    ".local/share/bash-completion/**",
    ".local/share/nautilus/scripts/**",
    ".bash_completion",
    ".oh-my-zsh/**",
    ".lldbinit",
    ".ghci",
    ".octaverc",
    ".julia/config/startup.jl",
    ".mongorc.js",
    ".mongoshrc.js",
    ".mailcap",
    ".forward",
    ".procmailrc",
    ".pam_environment",
    ".lessfilter",
    "/etc/bash_completion.d/**",
    "sitecustomize.py",
    "usercustomize.py",
    "*.pth",
    "/etc/profile",
    "/etc/profile.d/**",
    "/etc/bash.bashrc",
    "/etc/bashrc",
    "/etc/zsh/**",
    "/etc/zshrc",
    "/etc/environment",
    "/etc/crontab",
    "/etc/cron.d/**",
    "/etc/cron.hourly/**",
    "/etc/cron.daily/**",
    "/etc/cron.weekly/**",
    "/etc/cron.monthly/**",
    "/etc/anacrontab",
    "/var/spool/cron/**",
    "/etc/systemd/**",
    "/lib/systemd/**",
    "/usr/lib/systemd/**",
    "/run/systemd/**",
    "/etc/init.d/**",
    "/etc/rc.local",
    "/etc/rc.d/**",
    "/etc/init/**",
    "/etc/inittab",
    "/etc/xdg/autostart/**",
    "/etc/ld.so.preload",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d/**",
    "/etc/sudoers",
    "/etc/sudoers.d/**",
    "/etc/pam.d/**",
    "/etc/udev/**",
    "/etc/modprobe.d/**",
    "/etc/modules-load.d/**",
    "/etc/modules",
    "/etc/apt/apt.conf.d/**",
    "/etc/yum.repos.d/**",
    "/etc/apt/sources.list.d/**",
    "/etc/apt/sources.list",
    "/etc/update-motd.d/**",
    "/etc/NetworkManager/dispatcher.d/**",
    "/etc/gitconfig",
    "/etc/ssh/sshd_config",
    "/etc/logrotate.d/**",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/sys/fs/cgroup/**/release_agent",
    "release_agent",
];

const TRACES: &[&str] = &[
    ".bash_history",
    ".zsh_history",
    ".history",
    ".sh_history",
    ".ash_history",
    ".python_history",
    ".mysql_history",
    ".psql_history",
    ".sqlite_history",
    ".node_repl_history",
    ".rediscli_history",
    ".lesshst",
    ".viminfo",
    ".local/share/fish/fish_history",
    "/var/log/**",
    "/var/run/utmp",
    "/run/utmp",
    "/var/audit/**",
    "/run/log/**",
    "/var/log",
];

const ENGINE_SOCKETS: &[&str] = &[
    "docker.sock",
    "containerd.sock",
    "podman.sock",
    "crio.sock",
    "dockershim.sock",
    "docker_engine",
    "buildkitd.sock",
    "lxd/unix.socket",
];

/// The kinds that the names of a path say.
pub(crate) fn named(parts: &[&str]) -> Vec<PathClass> {
    let mut classes = Vec::new();
    let plain = !parts.iter().any(|part| part.contains(['*', '?', '[']));
    if listed(parts, SECRETS) && !(plain && listed(parts, NO_SECRETS)) {
        classes.push(PathClass::Secret);
    }
    if listed(parts, EXECUTED_LATER) {
        classes.push(PathClass::ExecutedLater);
    }
    if listed(parts, ENGINE_SOCKETS) {
        classes.push(PathClass::EngineSocket);
    }
    if listed(parts, TRACES) {
        classes.push(PathClass::Traces);
    }
    classes
}

/// What lies below `/dev`.
pub(crate) fn device(rest: &[&str]) -> PathClass {
    let Some(first) = rest.first() else { return PathClass::Device };
    let stream = [
        "null", "zero", "full", "random", "urandom", "stdin", "stdout", "stderr", "tty", "fd", "pts", "ptmx",
        "console", "tcp", "udp",
    ];
    if stream.contains(first) || first.starts_with("tty") { PathClass::Stream } else { PathClass::Device }
}
