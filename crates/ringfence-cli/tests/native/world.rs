//! A host of the test's own: with a network, a server of names whose answers change, and everybody else behind a cable. For all walls
//! alike: what counts is what the server of names was asked and who was reached, never what a program says.

use std::ffi::OsStr;

use ringfence_testkit::canary::secret;

use crate::stage::{Ended, Invocation, Stage};
use crate::tls_origin::Authority;

/// The names of such a host, and what is told of each: a list of addresses for each time that it is asked for, the last one again and again.
#[derive(Debug, Default)]
pub(crate) struct World {
    names: serde_json::Map<String, serde_json::Value>,
}

const WORLD: &str = include_str!("world.py");

impl World {
    pub(crate) fn name(mut self, name: &str, answers: &[&[&str]]) -> Self {
        self.names.insert(name.to_owned(), answers.into());
        self
    }

    /// Runs it on that host. `None`, loudly, where such a host cannot be made.
    fn run(&self, stage: &Stage, invocation: Invocation<'_>) -> Option<Told> {
        let folder = stage.path().join(secret().unwrap());
        std::fs::create_dir(&folder).unwrap();
        let names = serde_json::Value::Object(self.names.clone()).to_string();
        let own: &[&str] =
            if rustix::process::geteuid().is_root() { &[] } else { &["--user", "--map-current-user", "--keep-caps"] };
        let words = [own, &["--net", "--mount", "/usr/bin/python3", "-c", WORLD]].concat();
        let mut words: Vec<&OsStr> = words.into_iter().map(OsStr::new).collect();
        words.extend([folder.as_os_str(), OsStr::new(&names)]);
        let ended = invocation.by_way_of("unshare", &words).run();
        let seen = std::fs::read_to_string(folder.join("seen")).unwrap_or_default();
        let mut seen = seen.lines().map(str::to_owned);
        if seen.next().as_deref() != Some("begun") {
            let is_required =
                std::env::var("RINGFENCE_TEST_REQUIRE").is_ok_and(|list| list.split(',').any(|it| it == "native"));
            assert!(!is_required, "where `native` is required a host with a network of its own can be had: {ended:?}");
            eprintln!("SKIPPED: no host with a network of its own can be had here: {}", ended.stderr);
            return None;
        }
        Some(Told { ended, seen: seen.collect() })
    }
}

/// How a program ended, and what others saw of it.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) ended: Ended,
    seen: Vec<String>,
}

impl Told {
    /// What was seen that begins like this: the rest of the lines, sorted.
    pub(crate) fn seen(&self, kind: &str) -> Vec<&str> {
        let mut found: Vec<&str> =
            self.seen.iter().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' ')).collect();
        found.sort_unstable();
        found
    }
}

/// The secret of the host's user, and what stands for it inside.
pub(crate) const SECRET: &str = "s3cret-0123456789-of-the-host";
pub(crate) const PLACEHOLDER: &str = "ringfence.key.placeholder";

/// Whether the program is behind the wall, or is the twin without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Walled,
    Bare,
}

/// A program in Python that is run under a policy.
pub(crate) struct Try<'a> {
    pub(crate) policy: &'a str,
    pub(crate) code: &'a str,
    pub(crate) arguments: Vec<String>,
    /// Whom the host trusts. Then its user has a secret, too, for 127.0.0.1 and `api.names.test`.
    pub(crate) authority: Option<&'a Authority>,
    /// Where it is not the machine that the test is on.
    pub(crate) world: Option<&'a World>,
}

/// How it is run: each wall has its own. `None`, loudly, where it cannot be.
pub(crate) type Run<'a> = &'a dyn Fn(&Try<'_>, Side) -> Option<Told>;

impl Try<'_> {
    /// The words that start it.
    pub(crate) fn argv<'a>(&'a self, python: &'a str) -> Vec<&'a str> {
        [python, "-c", self.code].into_iter().chain(self.arguments.iter().map(String::as_str)).collect()
    }

    /// Runs it as `invocation`, which is of `stage`.
    pub(crate) fn end(&self, stage: &Stage, mut invocation: Invocation<'_>) -> Option<Told> {
        if let Some(authority) = self.authority {
            let folder = stage.path().join("home/.config/ringfence");
            std::fs::create_dir_all(&folder).unwrap();
            let defined =
                "credentials: { key: { from: { env: HOST_KEY }, hosts: [127.0.0.1, api.names.test], env: TOKEN } }";
            std::fs::write(folder.join("policy.yaml"), format!("version: 1\n{defined}\n")).unwrap();
            invocation = invocation.env("SSL_CERT_FILE", authority.write(stage.path())).env("HOST_KEY", SECRET);
        }
        match self.world {
            Some(world) => world.run(stage, invocation),
            None => Some(Told { ended: invocation.run(), seen: Vec::new() }),
        }
    }
}
