//! The environment that a program is executed with, and the proof that it is the listed one.
//!
//! `execve` gives a program the strings that it is handed, and nothing of the process that calls it. So what is proven is read
//! where the kernel is about to read it, and compared with the list. What is listed is not decided here.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use libc::c_char;

use crate::keeper::{LaunchError, c_string, null_terminated};

/// The strings of an environment, in the form that system calls take.
pub(crate) struct Environment {
    /// What the pointers lead to.
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Environment {
    pub(crate) fn new<T: AsRef<OsStr>>(listed: &[(T, T)]) -> Result<Self, LaunchError> {
        let entry = |(name, value): &(T, T)| {
            let entry = [name.as_ref().as_bytes(), b"=", value.as_ref().as_bytes()].concat();
            c_string(OsStr::from_bytes(&entry), "environment")
        };
        let strings = listed.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
        let pointers = null_terminated(&strings);
        Ok(Self { _strings: strings, pointers })
    }

    /// What `execve` takes. It is valid for as long as this is.
    pub(crate) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    /// Counts them, as [`count`] does.
    pub(crate) fn count<T: AsRef<OsStr>>(&self, listed: &[(T, T)]) -> Result<usize, usize> {
        // SAFETY: the list was made from strings that live as long as it does, and ends with a null pointer.
        unsafe { count(self.as_ptr(), listed) }
    }
}

/// How many strings are at `strings`, when they are the listed variables and no others; otherwise the first place where they
/// are not. Allocates nothing.
///
/// # Safety
///
/// `strings` is a list of NUL-terminated strings that ends with a null pointer, all of which stay valid during the call.
pub(crate) unsafe fn count<T: AsRef<OsStr>>(strings: *const *const c_char, listed: &[(T, T)]) -> Result<usize, usize> {
    let mut place = 0;
    loop {
        // SAFETY: by the caller's promise there is an element at every place up to the null pointer, after which we return.
        let string = unsafe { *strings.add(place) };
        match listed.get(place) {
            None if string.is_null() => return Ok(place),
            // SAFETY: it is not null, and by the caller's promise a string.
            Some(variable) if !string.is_null() && is(unsafe { CStr::from_ptr(string) }, variable) => place += 1,
            _ => return Err(place),
        }
    }
}

/// Whether `string` gives a variable of this name, by which no other can be meant, this value.
fn is<T: AsRef<OsStr>>(string: &CStr, (name, value): &(T, T)) -> bool {
    let name = name.as_ref().as_bytes();
    let given = string.to_bytes().strip_prefix(name).and_then(|rest| rest.strip_prefix(b"="));
    !name.is_empty() && !name.contains(&b'=') && given == Some(value.as_ref().as_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]
mod tests {
    use super::*;

    /// Whether strings that were made from `given` are taken for the listed ones.
    fn check(given: &[(&str, &str)], listed: &[(&str, &str)], expected: Result<usize, usize>) {
        assert_eq!(Environment::new(given).unwrap().count(listed), expected, "{given:?} for {listed:?}");
    }

    #[test]
    fn s01_an_environment_with_a_string_that_is_not_listed_is_not_the_listed_one() {
        let listed = [("PATH", "/bin"), ("HOME", "/home/agent")];
        check(&listed, &listed, Ok(2));
        check(&[], &[], Ok(0));
        check(&[("PATH", "/bin"), ("HOME", "/home/agent"), ("API_TOKEN", "x")], &listed, Err(2));
        check(&[("API_TOKEN", "x"), ("PATH", "/bin"), ("HOME", "/home/agent")], &listed, Err(0));
        check(&[("PATH", "/bin")], &listed, Err(1));
        check(&[("PATH", "/bin"), ("HOME", "/root")], &listed, Err(1));
        check(&[("PATH", "/bin"), ("HOME", "/home/agent2")], &listed, Err(1));
    }

    #[test]
    fn s01_a_name_that_could_be_another_variables_is_never_listed() {
        check(&[("A=B", "c")], &[("A=B", "c")], Err(0));
        check(&[("A", "B=c")], &[("A=B", "c")], Err(0));
        check(&[("", "c")], &[("", "c")], Err(0));
        check(&[("A", "B=c")], &[("A", "B=c")], Ok(1));
    }
}
