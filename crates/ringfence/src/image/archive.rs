//! The archive of one layer, member by member. Knows names and kinds, and writes nothing.
//!
//! Two readers of an archive that disagree are how names slip past a check, so whatever could be read in two ways is
//! refused: two names for one member, two sizes, data where none belongs, sparse files.

use std::io::{self, Read};

use super::unpack::UnpackError;

const BLOCK: usize = 512;
/// The longest extension header, which holds a long name or a list of properties.
const MOST_EXTENSION: u64 = 64 * 1024;
/// Extension headers before one member; two are usual.
const MOST_EXTENSIONS: usize = 8;

/// One member of an archive.
#[derive(Debug)]
pub(super) struct Member {
    /// As the archive says, unchecked.
    pub(super) name: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    /// In seconds since 1970.
    pub(super) modified: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    Link {
        target: Vec<u8>,
    },
    HardLink {
        target: Vec<u8>,
    },
    /// A device or a pipe.
    Special,
}

/// Reads an archive of at most a given length.
#[derive(Debug)]
pub(super) struct Archive<R> {
    from: R,
    /// How much may still be read.
    budget: u64,
    /// Of the current member.
    data_left: u64,
    padding: u64,
}

/// What extension headers say about the member that follows.
#[derive(Debug, Default)]
struct Extended {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
}

impl<R: Read> Archive<R> {
    pub(super) fn new(from: R, budget: u64) -> Self {
        Self { from, budget, data_left: 0, padding: 0 }
    }

    /// What may still be read, and the reader.
    pub(super) fn into_parts(self) -> (u64, R) {
        (self.budget, self.from)
    }

    /// The next member; nothing at the end. What was not read of the last one is passed over.
    pub(super) fn next(&mut self) -> Result<Option<Member>, UnpackError> {
        let mut extended = Extended::default();
        for extensions in 0.. {
            if extensions > MOST_EXTENSIONS {
                return Err(UnpackError::Broken("a member has too many extension headers"));
            }
            self.pass_over()?;
            let Some(block) = self.read_block()? else {
                if extensions > 0 {
                    return Err(UnpackError::Broken("it ends after an extension header"));
                }
                return Ok(None);
            };
            let header = tar::Header::from_byte_slice(&block);
            check_sum(header, &block)?;
            let broken = |what| move |_: io::Error| UnpackError::Broken(what);
            let size = header.entry_size().map_err(broken("a size is no number"))?;
            if size > self.budget {
                return Err(UnpackError::TooLarge);
            }
            self.data_left = size;
            self.padding = size.next_multiple_of(BLOCK as u64) - size;
            match header.entry_type().as_byte() {
                b'L' => set_once(&mut extended.name, self.read_long_name(size)?)?,
                b'K' => set_once(&mut extended.target, self.read_long_name(size)?)?,
                b'x' => read_properties(&self.read_extension(size)?, &mut extended)?,
                b'g' => {
                    // What holds for all members is not for names.
                    let mut of_all = Extended::default();
                    read_properties(&self.read_extension(size)?, &mut of_all)?;
                    if of_all.name.is_some() || of_all.target.is_some() || of_all.size.is_some() {
                        return Err(UnpackError::Broken("a header for all members gives names or sizes"));
                    }
                }
                kind => return self.member(header, kind, size, extended).map(Some),
            }
        }
        Ok(None)
    }

    fn member(&mut self, header: &tar::Header, kind: u8, size: u64, extended: Extended) -> Result<Member, UnpackError> {
        if extended.size.is_some_and(|other| other != size) {
            return Err(UnpackError::Broken("a member has two sizes"));
        }
        let name = extended.name.unwrap_or_else(|| header.path_bytes().into_owned());
        let target = || {
            let own = header.link_name_bytes().map(|name| name.into_owned());
            extended.target.clone().or(own).unwrap_or_default()
        };
        let kind = match kind {
            // The oldest archives know a folder by its last character.
            b'0' | 0 | b'7' if name.ends_with(b"/") => Kind::Folder,
            b'0' | 0 | b'7' => Kind::File,
            b'5' => Kind::Folder,
            b'2' => Kind::Link { target: target() },
            b'1' => Kind::HardLink { target: target() },
            b'3' | b'4' | b'6' => Kind::Special,
            b'S' => return Err(UnpackError::refused(&name, "is a sparse file, which is not unpacked")),
            _ => return Err(UnpackError::refused(&name, "is of a kind that is not known")),
        };
        if kind != Kind::File && size != 0 {
            return Err(UnpackError::refused(&name, "has data although it is no file"));
        }
        let mode = header.mode().map_err(|_| UnpackError::Broken("a mode is no number"))?;
        // A time that is no number harms nobody.
        let modified = header.mtime().unwrap_or(0);
        Ok(Member { name, kind, mode, modified })
    }

    /// Data of the current member; 0 bytes at its end.
    pub(super) fn read_data(&mut self, buffer: &mut [u8]) -> Result<usize, UnpackError> {
        let most = usize::try_from(self.data_left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..most).filter(|buffer| !buffer.is_empty()) else { return Ok(0) };
        let read = read_some(&mut self.from, buffer)?;
        if read == 0 {
            return Err(UnpackError::Broken("it ends within a file"));
        }
        self.spend(read)?;
        self.data_left -= read as u64;
        Ok(read)
    }

    fn pass_over(&mut self) -> Result<(), UnpackError> {
        let mut buffer = [0; 8192];
        self.data_left += std::mem::take(&mut self.padding);
        while self.read_data(&mut buffer)? > 0 {}
        Ok(())
    }

    fn spend(&mut self, bytes: usize) -> Result<(), UnpackError> {
        self.budget = self.budget.checked_sub(bytes as u64).ok_or(UnpackError::TooLarge)?;
        Ok(())
    }

    /// The next header; nothing at the end, which is a block of zeros or that of the stream.
    fn read_block(&mut self) -> Result<Option<[u8; BLOCK]>, UnpackError> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match read_some(&mut self.from, rest)? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(UnpackError::Broken("it ends within a header")),
                read => filled += read,
            }
        }
        self.spend(BLOCK)?;
        Ok(Some(block).filter(|block| block.iter().any(|byte| *byte != 0)))
    }

    fn read_extension(&mut self, size: u64) -> Result<Vec<u8>, UnpackError> {
        if size > MOST_EXTENSION {
            return Err(UnpackError::Broken("an extension header is longer than 64 KiB"));
        }
        let mut content = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            match self.read_data(&mut buffer)? {
                0 => return Ok(content),
                read => content.extend_from_slice(buffer.get(..read).unwrap_or_default()),
            }
        }
    }

    /// A name that is closed by zeros.
    fn read_long_name(&mut self, size: u64) -> Result<Vec<u8>, UnpackError> {
        let mut name = self.read_extension(size)?;
        let end = name.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        name.truncate(end);
        Ok(name)
    }
}

fn read_some(from: &mut impl Read, buffer: &mut [u8]) -> Result<usize, UnpackError> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read.map_err(UnpackError::Read),
        }
    }
}

fn check_sum(header: &tar::Header, block: &[u8; BLOCK]) -> Result<(), UnpackError> {
    let counts = |(at, byte): (usize, &u8)| u32::from(if (148..156).contains(&at) { b' ' } else { *byte });
    let sum: u32 = block.iter().enumerate().map(counts).sum();
    match header.cksum() {
        Ok(said) if said == sum => Ok(()),
        Ok(_) | Err(_) => Err(UnpackError::Broken("the sum of a header is wrong")),
    }
}

fn set_once<T>(slot: &mut Option<T>, value: T) -> Result<(), UnpackError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(UnpackError::Broken("a member has two names or sizes")),
    }
}

/// Records such as `20 path=usr/bin/name\n`. The length counts, not the line: a name may hold a line break.
fn read_properties(content: &[u8], extended: &mut Extended) -> Result<(), UnpackError> {
    let broken = || UnpackError::Broken("an extension header cannot be read");
    let mut rest = content;
    while !rest.is_empty() {
        let space = rest.iter().take(8).position(|byte| *byte == b' ').ok_or_else(broken)?;
        let digits = rest.get(..space).filter(|digits| digits.iter().all(u8::is_ascii_digit)).ok_or_else(broken)?;
        let length: usize = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or_else(broken)?;
        let record = rest.get(space + 1..length).and_then(|record| record.strip_suffix(b"\n")).ok_or_else(broken)?;
        rest = rest.get(length..).ok_or_else(broken)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(broken)?;
        let (key, value) = (record.get(..equals).unwrap_or_default(), record.get(equals + 1..).unwrap_or_default());
        match key {
            b"path" => set_once(&mut extended.name, value.to_vec())?,
            b"linkpath" => set_once(&mut extended.target, value.to_vec())?,
            b"size" => {
                let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or_else(broken)?;
                set_once(&mut extended.size, size)?;
            }
            key if key.starts_with(b"GNU.sparse") => {
                return Err(UnpackError::Broken("it has sparse files, which are not unpacked"));
            }
            // Owners, times, extended attributes: not kept.
            _ => {}
        }
    }
    Ok(())
}
