//! Calls that only speak of what they are given.

use super::value::Value;

/// Whether a function only looks at what it is given, by its full name.
pub(super) fn only_looks(name: &str) -> bool {
    matches!(
        name,
        "isinstance"
            | "issubclass"
            | "hasattr"
            | "callable"
            | "type"
            | "id"
            | "print"
            | "repr"
            | "console.log"
            | "expect"
            | "vitest.expect"
            | "jest.mocked"
            | "vi.mocked"
            | "vitest.vi.mocked"
            | "jest.isMockFunction"
            | "vi.isMockFunction"
            | "vitest.vi.isMockFunction"
    )
}

/// Whether a method says what stands in for the function that it is called on.
pub(super) fn is_stub(method: &str) -> bool {
    let of_jest = method.strip_prefix("mock").unwrap_or(method);
    matches!(
        of_jest.strip_suffix("Once").unwrap_or(of_jest),
        "Implementation" | "ReturnValue" | "ResolvedValue" | "RejectedValue" | "callsFake"
    )
}

/// Whether a call only speaks of what it is given, or looks whether it is there.
pub(super) fn is_talk(method: Option<&str>, callee: &Value) -> bool {
    let last = |name: &str| is_word_of_talk(name.rsplit_once('.').map_or(name, |(_, last)| last));
    method.is_some_and(last)
        || callee.names.iter().any(|name| last(name) || name.ends_with("Error") || name.ends_with("Exception"))
        || (callee.names.is_empty() && method.is_none())
}

/// Whether functions of this name speak, whoever they belong to.
fn is_word_of_talk(word: &str) -> bool {
    matches!(
        word,
        "print"
            | "log"
            | "info"
            | "debug"
            | "warn"
            | "warning"
            | "error"
            | "critical"
            | "exists"
            | "existsSync"
            | "isfile"
            | "isdir"
            | "is_file"
            | "startswith"
            | "endswith"
            | "startsWith"
            | "endsWith"
            | "includes"
            | "has"
            | "add"
            | "append"
            | "push"
            | "exit"
            | "getsize"
            | "stat"
            | "statSync"
            | "lstat"
            | "access"
            | "accessSync"
            | "getmtime"
            | "isinstance"
            | "Error"
            | "test"
            | "match"
            | "assertEqual"
            | "equal"
            | "toBe"
            | "toEqual"
            | "add_argument"
            | "get"
            | "set"
            | "dirname"
            | "basename"
            | "relpath"
            | "split"
            | "relative"
            | "join"
            | "resolve"
            | "extname"
            | "islink"
            | "format"
            | "secho"
            | "echo"
            | "write"
            | "describe"
            | "it"
    )
}
