//! Layers as they are packed: plain, gzip or zstd. The whole of a stream, which may have several parts.

use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// How a layer is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Plain,
    Gzip,
    Zstd,
}

/// Unpacks a stream.
pub(super) enum Decoder<R> {
    Plain(R),
    Gzip(Box<MultiGzDecoder<R>>),
    Zstd(Box<Frames<R>>),
}

impl<R: BufRead> Decoder<R> {
    pub(super) fn new(compression: Compression, from: R) -> Self {
        match compression {
            Compression::Plain => Self::Plain(from),
            Compression::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(from))),
            Compression::Zstd => {
                Self::Zstd(Box::new(Frames { decoder: FrameDecoder::new(), from, place: Place::Between }))
            }
        }
    }

    pub(super) fn into_inner(self) -> R {
        match self {
            Self::Plain(from) => from,
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Zstd(frames) => frames.from,
        }
    }
}

impl<R: BufRead> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(from) => from.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(frames) => frames.read(buffer),
        }
    }
}

/// A stream of zstd frames. The library reads one.
pub(super) struct Frames<R> {
    /// Refuses a window that would need more memory than its own cap.
    decoder: FrameDecoder,
    from: R,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Between,
    Inside,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.place == Place::Between {
                if self.from.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                match self.decoder.reset(&mut self.from) {
                    Ok(()) => self.place = Place::Inside,
                    Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                        length, ..
                    })) => {
                        let skipped = io::copy(&mut (&mut self.from).take(u64::from(length)), &mut io::sink())?;
                        if skipped != u64::from(length) {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                        continue;
                    }
                    Err(error) => return Err(io::Error::other(error)),
                }
            }
            if self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.from, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            match self.decoder.read(buffer)? {
                0 if self.decoder.is_finished() => self.place = Place::Between,
                0 => {}
                read => return Ok(read),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(compression: Compression, packed: &[u8], expected: Option<&[u8]>) {
        let mut unpacked = Vec::new();
        let read = Decoder::new(compression, packed).read_to_end(&mut unpacked);
        assert_eq!(read.ok().map(|_| unpacked.as_slice()), expected, "{packed:?}");
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut encoder, content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_stream_of_several_parts_is_read_to_its_end() {
        let content = b"abc".repeat(100_000);
        let twice = content.repeat(2);
        check(Compression::Plain, &content, Some(&content));
        check(Compression::Gzip, &[gzip(&content), gzip(&content)].concat(), Some(&twice));
        let skipped = [b"\x50\x2a\x4d\x18\x03\0\0\0xyz".to_vec(), zstd(&content)].concat();
        check(Compression::Zstd, &[zstd(&content), skipped].concat(), Some(&twice));
    }

    #[test]
    fn a_stream_that_is_cut_or_no_stream_is_an_error() {
        let content = b"abc".repeat(100_000);
        for (compression, packed) in [(Compression::Gzip, gzip(&content)), (Compression::Zstd, zstd(&content))] {
            check(compression, &packed, Some(&content));
            check(compression, &packed[..packed.len() / 2], None);
            check(compression, b"no such thing", None);
        }
        check(Compression::Zstd, b"\x50\x2a\x4d\x18\xff\0\0\0xyz", None);
    }
}
