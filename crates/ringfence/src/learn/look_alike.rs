//! Names that look like others. A guess that is right often enough to be worth a look, and never the only check.

/// Hosts that programs fetch from, and that others pretend to be.
const WELL_KNOWN: &[&str] = &[
    "anaconda.org",
    "archive.ubuntu.com",
    "bitbucket.org",
    "cargo.io",
    "crates.io",
    "debian.org",
    "docker.com",
    "docker.io",
    "files.pythonhosted.org",
    "ghcr.io",
    "github.com",
    "githubusercontent.com",
    "gitlab.com",
    "golang.org",
    "googleapis.com",
    "huggingface.co",
    "maven.org",
    "nodejs.org",
    "npmjs.com",
    "npmjs.org",
    "packagist.org",
    "pypi.org",
    "python.org",
    "pythonhosted.org",
    "registry.npmjs.org",
    "repo.maven.apache.org",
    "rubygems.org",
    "rust-lang.org",
    "rustup.rs",
    "ubuntu.com",
    "yarnpkg.com",
];

/// Shorter names are near to too many others.
const SHORTEST: usize = 8;

/// The host that `name` looks like without being it or below it: one of `listed`, or one that everybody knows.
pub(super) fn of<'k>(name: &str, listed: &[&'k str]) -> Option<&'k str> {
    let known = || listed.iter().chain(WELL_KNOWN).copied();
    if known().any(|known| name == known || is_below(name, known)) {
        return None;
    }
    known().find(|known| looks_like(name, known))
}

fn is_below(name: &str, parent: &str) -> bool {
    name.strip_suffix(parent).is_some_and(|front| front.ends_with('.'))
}

fn looks_like(name: &str, known: &str) -> bool {
    if known.len() < SHORTEST {
        return false;
    }
    // `pypi.org.example` and `pypi-org.example` begin with it, and belong to somebody else.
    let in_front = |form: &str| name.starts_with(&format!("{form}.")) || name.contains(&format!(".{form}."));
    if in_front(known) || in_front(&known.replace('.', "-")) {
        return true;
    }
    let labels = known.split('.').count();
    let end = last_labels(name, labels);
    // Names of one owner that differ in their first label do not pretend to be each other.
    let siblings = labels > 2 && last_labels(end, labels - 1) == last_labels(known, labels - 1);
    !siblings && end != known && (skeleton(end) == skeleton(known) || strsim::damerau_levenshtein(end, known) == 1)
}

fn last_labels(name: &str, labels: usize) -> &str {
    match name.rmatch_indices('.').nth(labels.saturating_sub(1)) {
        Some((dot, _)) => name.get(dot + 1..).unwrap_or(name),
        None => name,
    }
}

/// What is left when letters that look alike are one.
fn skeleton(name: &str) -> String {
    let letters = name.chars().filter(|letter| !matches!(letter, '-' | '_')).map(|letter| match letter {
        '0' => 'o',
        '1' | 'i' => 'l',
        '5' => 's',
        '8' => 'b',
        other => other,
    });
    letters.collect::<String>().replace("rn", "m").replace("vv", "w")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_pretend_to_be_others_are_found_and_honest_ones_are_not() {
        for (name, known) in [
            ("pypl.org", "pypi.org"),
            ("pyp1.org", "pypi.org"),
            ("pypi.org.evil.test", "pypi.org"),
            ("x.pypi-org.evil.test", "pypi.org"),
            ("githab.com", "github.com"),
            ("gihtub.com", "github.com"),
            ("api.glthub.com", "github.com"),
            ("registry.nprnjs.org", "npmjs.org"),
            ("intranet-corp.example", "intranet.corp.example"),
        ] {
            assert_eq!(of(name, &["intranet.corp.example"]), Some(known), "{name}");
        }
        for honest in ["pypi.org", "api.github.com", "example.org", "raw.githubusercontent.com", "b.corp.example"] {
            assert_eq!(of(honest, &["a.corp.example", "a.test"]), None, "{honest}");
        }
        assert_eq!(of("b.test", &["a.test"]), None);
    }
}
