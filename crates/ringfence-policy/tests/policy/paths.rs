use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use proptest::prelude::*;
use ringfence_policy::{Glob, LiteralPath, check_socket, check_source};

fn check(glob: &str, path: &[u8], matches: bool) {
    let glob: Glob = glob.parse().unwrap_or_else(|problem| panic!("{glob}: {problem}"));
    assert_eq!(glob.matches(Path::new(OsStr::from_bytes(path))), matches, "{glob} / {path:?}");
}

#[test]
fn globs_match_names_that_no_text_could_hold() {
    check("**/.env", b".env", true);
    check("**/.env", b"a/b/.env", true);
    check("**/.env", b"a/\xff\xfe/.env", true);
    check("**/.env", b"a\nb/.env", true);
    check("**/.env", b"\x1b[31m/.env", true);
    check("**/.env", b".envx", false);
    check("**/id_*", b"x/id_\xff", true);
    check("**/id_*", b"id_a\nb", true);
    check("**/a[[]b", b"a[b", true);
    check("**/a\\[b", b"a[b", true);
    check("**/a\\\\b", b"a\\b", true);
}

#[test]
fn one_star_stays_within_a_folder_and_two_do_not() {
    check("a/*", b"a/b", true);
    check("a/*", b"a/b/c", false);
    check("a/**", b"a/b/c", true);
    check("**/{x,y}.key", b"d/y.key", true);
}

#[test]
fn broken_globs_are_refused() {
    for text in [
        "",
        "a[",
        "{a",
        "a{b,{c}",
        "a\0b",
        "a\nb",
        &"x".repeat(2000),
        &format!("{}a{}", "{".repeat(400), "}".repeat(400)),
    ] {
        assert!(text.parse::<Glob>().is_err(), "{text}");
    }
}

#[test]
fn a_literal_path_is_no_pattern_and_expands_nothing() {
    for text in ["", "a*", "a?", "[a]", "{a,b}", "~/x", "$HOME", "../x", "a/../b", "a\0", "a\nb"] {
        assert!(text.parse::<LiteralPath>().is_err(), "{text:?}");
    }
    for text in [".", "./deps", "/home/me/my deps", "a..b"] {
        assert_eq!(text.parse::<LiteralPath>().unwrap().as_str(), text);
    }
}

#[test]
fn what_would_open_the_host_is_never_a_source() {
    for path in [
        "/",
        "//",
        "/.",
        "/proc",
        "/proc/self",
        "/sys",
        "/dev",
        "/dev/mem",
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run",
        "/var/run",
        "/run/containerd/containerd.sock",
        "/run/user/1000/podman/podman.sock",
        "/var/run/crio/crio.sock",
        "/home/me/docker.sock",
        "/var/lib/docker/volumes",
        "/var/lib/kubelet",
    ] {
        assert!(check_source(Path::new(path)).is_err(), "{path}");
    }
    for path in [".", "/home/me", "/run/postgresql", "/developer", "/system"] {
        assert!(check_source(Path::new(path)).is_ok(), "{path}");
    }
}

#[test]
fn e13_who_speaks_for_the_machine_or_its_user_is_never_a_socket() {
    for path in [
        "/run/docker.sock",
        "/run/containerd/containerd.sock",
        "/run/user/1000/podman/podman.sock",
        "/run/dbus/system_bus_socket",
        "/var/run/dbus/system_bus_socket",
        "/run/user/1000/bus",
        "/run/user/1000/systemd/private",
        "/run/systemd/private",
        "/tmp/ssh-XXXXabc/agent.4711",
        "/tmp/tmux-1000/default",
        "/run/screen/S-me/4711.pts",
        "/run/user/1000/emacs/server",
        "/run/user/1000/sway-ipc.1000.4711.sock",
        "/run/user/1000/vscode-ipc-1234.sock",
        "/run/user/1000/nvim.4711.0",
        "/home/me/.ssh/control-me@host:22",
        "/run/user/1000/ssh-agent.socket",
        "/run/user/1000/gnupg/S.gpg-agent.ssh",
        "/home/me/.gnupg/S.gpg-agent",
        "/run/user/1000/keyring/ssh",
        "/tmp/.X11-unix/X0",
        "/run/user/1000/wayland-0",
        "/run/libvirt/libvirt-sock",
        "/run/snapd.socket",
        "/proc/1/root/x.sock",
    ] {
        assert!(check_socket(Path::new(path)).is_err(), "{path}");
    }
    for path in [
        "/run/postgresql/.s.PGSQL.5432",
        "/run/mysqld/mysqld.sock",
        "/tmp/mine.sock",
        "/srv/bus",
        "/run/user/1000/app/x",
    ] {
        assert!(check_socket(Path::new(path)).is_ok(), "{path}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_glob_or_refused_and_matching_never_panics(text in "\\PC{0,60}|[a-z*?\\[\\]{},!\\\\/^-]{0,40}", path: Vec<u8>) {
        if let Ok(glob) = text.parse::<Glob>() {
            glob.matches(Path::new(OsStr::from_bytes(&path)));
            prop_assert_eq!(glob.as_str(), text);
        }
    }
}
