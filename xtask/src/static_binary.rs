//! Whether a binary is static: an ELF file whose program headers name no interpreter.

use std::path::Path;

use crate::step::Failure;

const PT_INTERP: u32 = 3;
/// Enough for the header and every program header that a linker writes.
const HEADERS: u64 = 1 << 20;

/// Fails unless the kernel can start this file without a loader.
pub(crate) fn require_static(file: &Path) -> Result<(), Failure> {
    use std::io::Read;
    let attempt = format!("read `{}`", file.display());
    let mut bytes = Vec::new();
    std::fs::File::open(file)
        .and_then(|open| open.take(HEADERS).read_to_end(&mut bytes))
        .map_err(|error| Failure::io(attempt, &error))?;
    match has_interpreter(&bytes) {
        Some(false) => Ok(()),
        Some(true) => Err(Failure::new(format!(
            "`{}` needs a dynamic loader; build it with `-C target-feature=+crt-static` as .cargo/config.toml says \
             (a RUSTFLAGS variable replaces that setting)",
            file.display()
        ))),
        None => Err(Failure::new(format!("`{}` is not a 64-bit little-endian ELF file", file.display()))),
    }
}

/// `None`: not an ELF file that we can read, or cut short.
fn has_interpreter(bytes: &[u8]) -> Option<bool> {
    // Magic number, 64 bits, little-endian.
    if bytes.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let table = usize::try_from(u64::from_le_bytes(field(bytes, 32)?)).ok()?;
    let entry_size = usize::from(u16::from_le_bytes(field(bytes, 54)?));
    let entries = usize::from(u16::from_le_bytes(field(bytes, 56)?));
    if entries == 0 || entry_size < 56 {
        return None;
    }
    for index in 0..entries {
        let at = table.checked_add(index.checked_mul(entry_size)?)?;
        if u32::from_le_bytes(field(bytes, at)?) == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(kinds: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56 * kinds.len()];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = u8::try_from(kinds.len()).unwrap();
        for (index, kind) in kinds.iter().enumerate() {
            bytes[64 + 56 * index..][..4].copy_from_slice(&kind.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn an_interpreter_is_seen_wherever_it_stands_and_a_static_file_has_none() {
        assert_eq!(has_interpreter(&elf(&[1, 1, 6])), Some(false));
        assert_eq!(has_interpreter(&elf(&[6, PT_INTERP, 1])), Some(true));
        assert_eq!(has_interpreter(&elf(&[1, 1, PT_INTERP])), Some(true));
    }

    #[test]
    fn what_is_cut_short_or_lies_about_itself_is_not_called_static() {
        let whole = elf(&[1, PT_INTERP]);
        for length in 0..whole.len() - 52 {
            assert_ne!(has_interpreter(&whole[..length]), Some(false), "{length}");
        }
        let mut far = elf(&[1]);
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(has_interpreter(&far), None);
        assert_eq!(has_interpreter(&elf(&[])), None);
        assert_eq!(has_interpreter(b"#!/bin/sh\n"), None);
    }
}
