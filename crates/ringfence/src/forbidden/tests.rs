//! Hosts that forbid walls, each as the files that tell of it.

use super::*;

const ORDINARY: &str = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t0\n";
const ORDINARY_FILTERED: &str = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nSeccomp:\t2\n";
const ROOT: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n";
/// As Docker starts it.
const ROOT_OF_DOCKER: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\nSeccomp:\t2\n";
const POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

fn refused(need: Need, errno: Errno) -> Refused {
    Refused { need, errno: errno.raw_os_error() }
}

/// What is said of `refused` where these files are the host; each of `said` is in it, its fix among them.
fn check(refused: Refused, files: &[(&str, &str)], said: &[&str]) {
    let read = |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
    let Unavailable { reason, fix } = explain(refused, &read);
    let all = format!("{reason}\nfix: {fix}");
    for word in said {
        assert!(all.contains(word), "`{word}` is missing in: {all}");
    }
}

#[test]
fn n13_a_limit_of_namespaces_is_named_with_its_value_and_the_command() {
    let files = [(STATUS, ORDINARY), (MOST_USERS, "0")];
    let said = ["user.max_user_namespaces = 0", "sysctl -w user.max_user_namespaces=10000", "os error 28"];
    check(refused(Need::Users, Errno::NOSPC), &files, &said);
    let files = [(STATUS, ROOT), ("/proc/sys/user/max_pid_namespaces", "0")];
    check(
        refused(Need::Processes, Errno::NOSPC),
        &files,
        &["make a process namespace", "user.max_pid_namespaces=10000"],
    );
    let files = [(STATUS, ORDINARY), ("/proc/sys/user/max_net_namespaces", "512")];
    check(refused(Need::Network, Errno::NOSPC), &files, &["as many exist as may", "user.max_net_namespaces = 512"]);
    check(refused(Need::Users, Errno::USERS), &[(STATUS, ORDINARY)], &["nested too deeply"]);
}

#[test]
fn n13_a_setting_that_is_for_root_alone_is_named_only_where_it_counts() {
    let clone = "kernel.unprivileged_userns_clone";
    let files = [(STATUS, ORDINARY), (USERS_BY_ANYBODY, "0")];
    check(refused(Need::Users, Errno::PERM), &files, &[clone, "sysctl -w kernel.unprivileged_userns_clone=1"]);
    let files = [(STATUS, ROOT), (USERS_BY_ANYBODY, "0")];
    check(refused(Need::Users, Errno::PERM), &files, &["nothing that can be read here says why"]);
    let files = [(STATUS, ORDINARY), (USERS_BY_ANYBODY, "1")];
    check(refused(Need::Users, Errno::PERM), &files, &["nothing that can be read here says why"]);
}

#[test]
fn n13_apparmors_restriction_is_named_with_the_profile_that_we_run_in() {
    let restricted = |profile| [(STATUS, ORDINARY), (APPARMOR_RESTRICTS, "1"), (PROFILES[0], profile)];
    for need in [Need::Users, Need::Map, Need::CutOff, Need::FileSystem] {
        let said = ["apparmor_restrict_unprivileged_userns = 1", "`unconfined`", "apparmor_parser -r", "sysctl -w"];
        check(refused(need, Errno::ACCESS), &restricted("unconfined"), &said);
    }
    check(
        refused(Need::FileSystem, Errno::PERM),
        &restricted("unprivileged_userns (enforce)"),
        &["`unprivileged_userns (enforce)`"],
    );
    let lifted = [(STATUS, ORDINARY), (APPARMOR_RESTRICTS, "0"), (PROFILES[1], "editor (enforce)\0")];
    check(
        refused(Need::FileSystem, Errno::ACCESS),
        &lifted,
        &["the AppArmor profile that this runs in, `editor (enforce)`"],
    );
    let no_apparmor =
        [(STATUS, ORDINARY), ("/sys/kernel/security/lsm", "lockdown,selinux"), (PROFILES[1], "unconfined")];
    check(refused(Need::Users, Errno::ACCESS), &no_apparmor, &["nothing that can be read here says why"]);
}

#[test]
fn n13_each_container_is_named_with_the_option_that_it_lacks() {
    let filtered = |marker| [(STATUS, ROOT_OF_DOCKER), (marker, "")];
    let check_filter = |marker, said: &[&str]| check(refused(Need::Users, Errno::PERM), &filtered(marker), said);
    check_filter(
        "/.dockerenv",
        &[
            "a Docker container, whose seccomp filter",
            "--security-opt seccomp=unconfined",
            "--cap-add SYS_ADMIN",
            "--privileged",
        ],
    );
    check_filter("/run/.containerenv", &["a Podman container", "--security-opt seccomp=unconfined"]);
    check_filter(POD, &["a Kubernetes pod", "seccompProfile: { type: Unconfined }"]);
    check_filter("/run/systemd/container", &["a container", "security.nesting=true"]);
    let confined = [(STATUS, ROOT_OF_DOCKER), ("/.dockerenv", ""), (PROFILES[0], "docker-default (enforce)")];
    let said = ["AppArmor profile `docker-default (enforce)`", "--security-opt apparmor=unconfined"];
    check(refused(Need::FileSystem, Errno::ACCESS), &confined, &said);
    let proc = |marker| [(STATUS, ROOT), (marker, "")];
    let check_proc = |marker, said| check(refused(Need::Proc, Errno::PERM), &proc(marker), &[said]);
    check_proc("/.dockerenv", "--security-opt systempaths=unconfined");
    check_proc("/run/.containerenv", "--security-opt unmask=ALL");
    check_proc(POD, "procMount: Unmasked");
    check(refused(Need::Proc, Errno::PERM), &[(STATUS, ORDINARY)], &["parts of /proc are covered by other mounts"]);
}

#[test]
fn n13_a_root_that_may_less_hears_what_it_lacks_or_to_be_an_ordinary_user() {
    let without_admin = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffdfffff\nSeccomp:\t0\n";
    let said = ["copy mounts of the host", "no CAP_SYS_ADMIN", "or as an ordinary user"];
    check(refused(Need::HostMounts, Errno::PERM), &[(STATUS, without_admin)], &said);
    let in_docker = [(STATUS, ROOT_OF_DOCKER), ("/.dockerenv", "")];
    check(refused(Need::HostMounts, Errno::PERM), &in_docker, &["--cap-add SYS_ADMIN", "by `--user`"]);
    let without_setuid = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffff3f\nSeccomp:\t0\n";
    check(refused(Need::Map, Errno::PERM), &[(STATUS, without_setuid)], &["no CAP_SETUID and CAP_SETGID"]);
    let rootless = [(STATUS, ROOT), (USERS_HERE, "0 1000 1\n1 100000 65536")];
    check(
        refused(Need::Map, Errno::PERM),
        &rootless,
        &["knows few users (`0 1000 1 1 100000 65536`)", "as an ordinary user in it"],
    );
}

#[test]
fn n13_what_else_may_refuse_is_named_by_what_it_left() {
    check(
        refused(Need::Users, Errno::PERM),
        &[(STATUS, ORDINARY_FILTERED)],
        &["a seccomp filter", "RestrictNamespaces=no"],
    );
    check(refused(Need::Users, Errno::INVAL), &[(STATUS, ORDINARY)], &["no user namespaces", "CONFIG_USER_NS"]);
    let chroot = [(STATUS, ORDINARY), (MOUNTS, "30 20 0:5 / /proc rw - proc proc rw\n")];
    check(refused(Need::Users, Errno::PERM), &chroot, &["a chroot", "pivot_root"]);
    let no_chroot = [(STATUS, ORDINARY), (MOUNTS, "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n")];
    check(refused(Need::Users, Errno::PERM), &no_chroot, &["nothing that can be read here says why", "dmesg"]);
    let selinux = [(STATUS, ORDINARY), ("/sys/fs/selinux/enforce", "1")];
    check(refused(Need::Users, Errno::ACCESS), &selinux, &["SELinux is enforcing", "ausearch"]);
    check(refused(Need::FileSystem, Errno::NOSYS), &[(STATUS, ORDINARY)], &["does not have the calls", "5.13"]);
}

#[test]
fn n13_only_settings_that_forbid_for_sure_keep_a_wall_from_being_tried() {
    let check = |files: &[(&str, &str)], expected: bool| {
        let files = [&[(USERS_HERE, "0 0 4294967295"), (STATUS, ORDINARY)], files].concat();
        let read = |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
        assert_eq!(by_settings(&read).is_some(), expected, "{files:?}");
    };
    check(&[], false);
    check(&[(MOST_USERS, "0")], true);
    check(&[(USERS_BY_ANYBODY, "0")], true);
    check(&[(MOST_USERS, "100"), (USERS_BY_ANYBODY, "1")], false);
    // Its profile may permit it: that is seen only by trying.
    check(&[(APPARMOR_RESTRICTS, "1"), (PROFILES[0], "ringfence (unconfined)")], false);
    assert!(by_settings(&|_| None).is_some_and(|why| why.reason.contains("no user namespaces")));
}
