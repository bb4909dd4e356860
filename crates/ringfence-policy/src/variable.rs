//! Names of environment variables: which may be passed, and which change what code a program loads.

use crate::diagnostic::{Invalid, quote};

const BAD_NAME: &str = "policy::bad-variable";
const MAX_NAME: usize = 256;

/// A name that a shell could assign to.
pub(crate) fn check_name(text: &str) -> Result<String, Invalid> {
    let valid = !text.is_empty()
        && text.len() <= MAX_NAME
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if valid {
        return Ok(text.to_owned());
    }
    let message = format!("{} is not the name of a variable", quote(text));
    Err(Invalid::new(BAD_NAME, message, "use letters, digits and `_`, such as `LANG`"))
}

/// A name, or the start of several written `PREFIX_*`.
pub(crate) fn check_pass(text: &str) -> Result<String, Invalid> {
    match text.strip_suffix('*') {
        Some("") => Err(Invalid::new(
            BAD_NAME,
            "`*` would pass every variable, with every secret in them",
            "list the names that the program needs, such as `[LANG, LC_*]`",
        )),
        Some(prefix) if prefix.len() >= 2 && prefix.ends_with('_') => check_name(prefix).map(|_| text.to_owned()),
        Some(_) => {
            Err(Invalid::new(BAD_NAME, format!("{} is too broad", quote(text)), "a prefix ends in `_`, such as `LC_*`"))
        }
        None => check_name(text),
    }
}

/// Whether every name that `theirs` stands for is meant by `mine`.
pub(crate) fn covers_pass(mine: &str, theirs: &str) -> bool {
    match mine.strip_suffix('*') {
        Some(prefix) => theirs.starts_with(prefix),
        None => mine == theirs,
    }
}

pub(crate) fn check_value(text: &str) -> Result<String, Invalid> {
    if text.contains('\0') {
        return Err(Invalid::new(
            BAD_NAME,
            "the value of a variable holds a NUL byte",
            "remove it: it would end the value",
        ));
    }
    Ok(text.to_owned())
}

/// Variables that make an ordinary program load or run code, trust other certificates, or talk through another host.
const LOADERS: [&str; 58] = [
    "ALL_PROXY",
    "BASHOPTS",
    "BASH_ENV",
    "BROWSER",
    "CC",
    "CDPATH",
    "CLASSPATH",
    "CURL_CA_BUNDLE",
    "CXX",
    "DOCKER_HOST",
    "EDITOR",
    "ENV",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "GLOBIGNORE",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "KUBECONFIG",
    "LESSCLOSE",
    "LESSOPEN",
    "LOCPATH",
    "MAKEFLAGS",
    "MANPAGER",
    "NLSPATH",
    "NODE_EXTRA_CA_CERTS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NO_PROXY",
    "PAGER",
    "PATH",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PROMPT_COMMAND",
    "PS4",
    "PYTHONBREAKPOINT",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONPLATLIBDIR",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "REQUESTS_CA_BUNDLE",
    "RUBYLIB",
    "RUBYOPT",
    "SHELL",
    "SHELLOPTS",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "VISUAL",
    "_JAVA_OPTIONS",
];

const LOADER_PREFIXES: [&str; 17] = [
    "BASH_FUNC_",
    "CARGO_",
    "DENO_",
    "DYLD_",
    "GIT_",
    "LD_",
    "LUA_",
    "MALLOC_",
    "NPM_CONFIG_",
    "PIP_",
    "R_",
    "RINGFENCE_",
    "RUST",
    "SSH_",
    "UV_",
    "YARN_",
    "ZDOT",
];

/// Whether setting `name` can change what code a program loads. Case does not matter: some programs read both.
pub(crate) fn changes_code(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    LOADERS.contains(&upper.as_str()) || LOADER_PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
}
