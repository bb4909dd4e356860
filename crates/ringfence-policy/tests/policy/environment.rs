use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStringExt;

use ringfence_policy::{
    BackendChoice, BackendKind, Layer, LayerInput, NetMode, ResolvedPolicy, environment_layer, resolve,
};

use crate::layer;

fn read(vars: &[(&str, &str)]) -> Result<Option<LayerInput>, Vec<ringfence_policy::Diagnostic>> {
    environment_layer(vars.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))))
}

/// The project's text with these variables above it.
fn check(project: &str, vars: &[(&str, &str)]) -> ResolvedPolicy {
    let mut inputs = vec![layer(Layer::Project, project)];
    inputs.extend(read(vars).unwrap_or_else(|problems| panic!("{problems:?}")));
    resolve(&inputs, &[]).unwrap()
}

#[test]
fn variables_that_are_not_ours_make_no_layer() {
    assert_eq!(read(&[("PATH", "/bin"), ("RINGFENCE_LOG", "debug"), ("SECURITY_LEVEL", "x")]).unwrap(), None);
}

#[test]
fn every_variable_sets_its_value_and_is_named_as_its_origin() {
    let policy = check(
        "proc: { memory: 1GiB }",
        &[
            ("RINGFENCE_BACKEND", "docker"),
            ("RINGFENCE_FALLBACK", "native, spawn"),
            ("RINGFENCE_RUNTIME", "runsc"),
            ("RINGFENCE_IMAGE", "python:3.14"),
            ("RINGFENCE_TIMEOUT", "5s"),
            ("RINGFENCE_MAX_TIMEOUT", "10s"),
            ("RINGFENCE_MEMORY", "256MiB"),
            ("RINGFENCE_CPUS", "0.5"),
            ("RINGFENCE_PROCESSES", "9"),
            ("RINGFENCE_OUTPUT", "1KiB"),
            ("RINGFENCE_ALLOW_HOSTS", "pypi.org, *.example.org"),
            ("RINGFENCE_WORKSPACE_MODE", "read-only"),
            ("RINGFENCE_VALIDATE", "strict"),
            ("RINGFENCE_PASS_ENV", "FOO,BAR_*"),
        ],
    );
    assert_eq!(policy.backend.choice.value, BackendChoice::Kind(BackendKind::Docker));
    assert_eq!(policy.backend.fallback.len(), 2);
    let runtime = policy.backend.runtime.as_ref().unwrap();
    assert_eq!(
        (runtime.value.as_str(), runtime.origin.to_string().as_str()),
        ("runsc", "environment RINGFENCE_RUNTIME")
    );
    assert_eq!(policy.image.as_ref().unwrap().value.as_str(), "python:3.14");
    assert_eq!(policy.proc.memory.value.to_string(), "256MiB");
    assert_eq!(policy.proc.memory.origin.to_string(), "environment RINGFENCE_MEMORY");
    assert_eq!(policy.proc.timeout.value.to_string(), "5s");
    assert_eq!(policy.net.mode.value, NetMode::Allowlist, "who names hosts wants them reached");
    assert_eq!(policy.net.allow.len(), 2);
    assert!(policy.proc.env.pass.iter().any(|name| name.value == "BAR_*"));
}

#[test]
fn a_stated_network_mode_is_kept_although_hosts_are_named() {
    let policy = check("", &[("RINGFENCE_NET", "none"), ("RINGFENCE_ALLOW_HOSTS", "pypi.org")]);
    assert_eq!(policy.net.mode.value, NetMode::None);
}

#[test]
fn the_sandbox_switch_forbids_weak_walls_and_keeps_a_named_strong_one() {
    let on = [("SECURITY_ENABLE_SANDBOX", "true")];
    let strong = check("backend: { use: docker, fallback: [podman, spawn] }", &on);
    assert_eq!(strong.backend.choice.value, BackendChoice::Kind(BackendKind::Docker));
    assert_eq!(strong.backend.fallback.len(), 1);
    let weak = check("backend: { use: none, fallback: [spawn] }", &on);
    assert_eq!(weak.backend.choice.value, BackendChoice::Auto);
    assert!(weak.backend.fallback.is_empty());
    let off = check("", &[("SECURITY_ENABLE_SANDBOX", "0")]);
    assert_eq!(off.backend.choice.value, BackendChoice::Kind(BackendKind::None));
    let ours = check("", &[("SECURITY_ENABLE_SANDBOX", "no"), ("RINGFENCE_BACKEND", "native")]);
    assert_eq!(ours.backend.choice.value, BackendChoice::Kind(BackendKind::Native));
}

#[test]
fn the_aliases_mean_the_same_and_ours_win() {
    let policy = check("", &[("SECURITY_MAX_EXECUTION_TIME", "30"), ("SECURITY_DOCKER_IMAGE", "a:1")]);
    assert_eq!(
        (policy.proc.timeout.value.to_string(), policy.proc.max_timeout.value.to_string()),
        ("30s".into(), "30s".into())
    );
    assert_eq!(policy.image.unwrap().value.as_str(), "a:1");
    let ours =
        check("", &[("SECURITY_MAX_EXECUTION_TIME", "30s"), ("RINGFENCE_TIMEOUT", "60s"), ("RINGFENCE_IMAGE", "b")]);
    assert_eq!(
        (ours.proc.timeout.value.to_string(), ours.proc.max_timeout.value.to_string()),
        ("60s".into(), "600s".into())
    );
    let ceiling = check("", &[("SECURITY_MAX_EXECUTION_TIME", "90"), ("RINGFENCE_MAX_TIMEOUT", "60s")]);
    assert_eq!(
        (ceiling.proc.timeout.value.to_string(), ceiling.proc.max_timeout.value.to_string()),
        ("60s".into(), "60s".into())
    );
}

#[test]
fn variables_that_are_refused() {
    let mut out = String::new();
    for (name, value) in [
        ("RINGFENCE_TIMOUT", "5s"),
        ("RINGFENCE_SOMETHING_ELSE", "1"),
        ("RINGFENCE_TIMEOUT", "5"),
        ("RINGFENCE_TIMEOUT", ""),
        ("RINGFENCE_TIMEOUT", "0s"),
        ("RINGFENCE_BACKEND", "dokcer"),
        ("RINGFENCE_IMAGE", "--privileged"),
        ("RINGFENCE_RUNTIME", "/usr/bin/runsc"),
        ("RINGFENCE_RUNTIME", "--privileged"),
        ("RINGFENCE_ALLOW_HOSTS", "pypi.org,*"),
        ("RINGFENCE_PASS_ENV", "*"),
        ("SECURITY_ENABLE_SANDBOX", "maybe"),
        ("SECURITY_MAX_EXECUTION_TIME", "-1"),
        ("SECURITY_MAX_EXECUTION_TIME", "0"),
    ] {
        for problem in read(&[(name, value)]).expect_err(name) {
            writeln!(out, "{name}={value}\n    {problem}\n    hint: {}", problem.advice.as_deref().unwrap_or_default())
                .unwrap();
        }
    }
    crate::assert_page!(out);
}

#[test]
fn a_value_that_is_not_text_is_refused_and_a_foreign_name_ignored() {
    let value = OsString::from_vec(vec![0xff]);
    assert!(environment_layer([(OsString::from("RINGFENCE_MEMORY"), value.clone())]).is_err());
    assert_eq!(environment_layer([(value, OsString::from("x"))]).unwrap(), None);
}

#[test]
fn a_limit_above_its_ceiling_in_the_environment_is_refused() {
    assert!(read(&[("RINGFENCE_TIMEOUT", "60s"), ("RINGFENCE_MAX_TIMEOUT", "30s")]).is_err());
}
