//! Whole images: many chunks by many threads, in the order of their numbers.

use std::io::{self, Read, Write};

use crate::chunks::{CHUNK_BYTES, ChunkCipher, MAX_BYTES, TAG_BYTES, Tag};
use crate::error::SealError;
use crate::keys::{KeyId, MasterKey, SALT_BYTES, random};
use crate::metadata;
use crate::wire::{ALGORITHM_AES_256_GCM, Encryption, KeySourceKind};

/// Chunks that a thread takes before the results are written: 2 MiB.
const CHUNKS_PER_THREAD: usize = 8;

/// What sealing leaves beside the cipher text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Bytes of the text, and of the cipher text.
    pub bytes: u64,
    /// The table of tags, as it lies on the device.
    pub table: Vec<u8>,
}

impl Sealed {
    /// From what the header and the device say; nothing of it is checked yet.
    pub fn new(bytes: u64, table: Vec<u8>) -> Self {
        Self { bytes, table }
    }

    /// Bytes of the table of tags for so many bytes.
    pub fn table_bytes(bytes: u64) -> u64 {
        chunks_of(bytes) * TAG_BYTES as u64
    }

    fn tag(&self, index: u64) -> Tag {
        let at = index as usize * TAG_BYTES;
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&self.table[at..at + TAG_BYTES]);
        tag
    }
}

fn chunks_of(bytes: u64) -> u64 {
    bytes.div_ceil(CHUNK_BYTES as u64).max(1)
}

/// Seals one image.
pub struct Sealer {
    cipher: ChunkCipher,
    metadata_key: ring::hmac::Key,
    record: Encryption,
}

impl Sealer {
    /// With a new salt. `counter` is what the monotonic counter stands at from now on, 0 if there
    /// is none.
    ///
    /// # Errors
    /// The machine has no random numbers.
    pub fn new(
        master: &MasterKey,
        source: KeySourceKind,
        key_id: &KeyId,
        counter: u64,
    ) -> Result<Self, SealError> {
        let salt: [u8; SALT_BYTES] = random()?;
        Ok(Self {
            cipher: ChunkCipher::new(master, &salt),
            metadata_key: master.metadata_key(&salt),
            record: Encryption {
                algorithm: ALGORITHM_AES_256_GCM,
                key_source: source.number(),
                key_id: *key_id,
                salt,
                tag: [0; 32],
                counter,
                tag_table_offset: 0,
                tag_table_bytes: 0,
            },
        })
    }

    /// Reads everything, writes as many bytes of cipher text. Takes the sealer: its key seals one
    /// image, or a nonce would be used twice.
    ///
    /// # Errors
    /// Reading or writing failed, or there is too much.
    pub fn seal_stream(
        self,
        mut from: impl Read,
        mut to: impl Write,
        threads: usize,
    ) -> Result<Unsigned, SealError> {
        let batch_bytes = batch_bytes(threads);
        let mut sealed = Sealed::new(0, Vec::new());
        let mut batch = read_batch(&mut from, batch_bytes)?;
        loop {
            // One batch ahead: only so the last chunk is known to be the last.
            let next = if batch.len() == batch_bytes {
                read_batch(&mut from, batch_bytes)?
            } else {
                Vec::new()
            };
            let last = next.is_empty();
            let first = sealed.bytes / CHUNK_BYTES as u64;
            sealed.bytes += batch.len() as u64;
            if sealed.bytes > MAX_BYTES {
                return Err(SealError::TooLong { limit: MAX_BYTES });
            }
            for tag in self.seal_batch(&mut batch, first, last, threads) {
                sealed.table.extend_from_slice(&tag);
            }
            to.write_all(&batch)?;
            if last {
                return Ok(Unsigned {
                    metadata_key: self.metadata_key,
                    record: self.record,
                    sealed,
                });
            }
            batch = next;
        }
    }

    fn seal_batch(&self, batch: &mut [u8], first: u64, last: bool, threads: usize) -> Vec<Tag> {
        let chunks = chunks_of(batch.len() as u64);
        let mut tags = vec![[0; TAG_BYTES]; chunks as usize];
        let end = first + chunks;
        let work = parts(batch, &mut tags, threads);
        std::thread::scope(|scope| {
            for (part, data, tags) in work {
                let from = first + part;
                scope.spawn(move || {
                    for (index, (chunk, tag)) in chunks_in(data).zip(tags).enumerate() {
                        let index = from + index as u64;
                        *tag = self
                            .cipher
                            .seal(index as u32, last && index + 1 == end, chunk);
                    }
                });
            }
        });
        tags
    }
}

/// An image whose chunks are sealed and whose metadata is not yet.
pub struct Unsigned {
    metadata_key: ring::hmac::Key,
    record: Encryption,
    sealed: Sealed,
}

impl Unsigned {
    /// How long it is, and the table of tags.
    pub fn sealed(&self) -> &Sealed {
        &self.sealed
    }

    /// The record for the header, with the tag over the table of tags and `parts`: the header by
    /// [`crate::authenticated_header`], then bitmaps and tables. `table_offset` is where the
    /// caller puts the table of tags.
    pub fn finish(mut self, table_offset: u64, parts: &[&[u8]]) -> Encryption {
        self.record.tag_table_offset = table_offset;
        self.record.tag_table_bytes = self.sealed.table.len() as u64;
        let tag = metadata::tag(
            &self.metadata_key,
            &self.record,
            self.sealed.bytes,
            &self.sealed.table,
            parts,
        );
        self.record.tag.copy_from_slice(tag.as_ref());
        self.record
    }
}

/// Opens one image, the metadata of which is authentic.
pub struct Opener {
    cipher: ChunkCipher,
    sealed: Sealed,
    counter: u64,
}

impl Opener {
    /// Authenticates the metadata: nothing of the image may be used before.
    ///
    /// # Errors
    /// Another key, an unknown algorithm, or changed metadata.
    pub fn new(
        master: &MasterKey,
        record: &Encryption,
        parts: &[&[u8]],
        sealed: &Sealed,
    ) -> Result<Self, SealError> {
        if record.algorithm != ALGORITHM_AES_256_GCM {
            return Err(SealError::Algorithm {
                found: record.algorithm,
            });
        }
        let key = master.metadata_key(&record.salt);
        if !metadata::verify(&key, record, sealed.bytes, &sealed.table, parts) {
            // The name of the key is authenticated too; it only makes the reason better.
            let named = record.key_source == KeySourceKind::Passphrase.number()
                || record.key_id == master.id();
            return Err(if named {
                SealError::Metadata
            } else {
                SealError::WrongKey
            });
        }
        let table_bytes = sealed.table.len() as u64;
        if record.tag_table_bytes != table_bytes || table_bytes != Sealed::table_bytes(sealed.bytes)
        {
            return Err(SealError::Metadata);
        }
        Ok(Self {
            cipher: ChunkCipher::new(master, &record.salt),
            sealed: sealed.clone(),
            counter: record.counter,
        })
    }

    /// Refuses an older image. `machine` is what the monotonic counter stands at.
    ///
    /// # Errors
    /// The image has another value.
    pub fn check_counter(&self, machine: u64) -> Result<(), SealError> {
        if self.counter == machine {
            return Ok(());
        }
        Err(SealError::Older {
            image: self.counter,
            machine,
        })
    }

    /// Reads the cipher text, writes the text. A byte is written only after its chunk was found
    /// to be authentic; when this fails, what was written before is an authentic beginning, and
    /// the caller throws it away.
    ///
    /// # Errors
    /// A changed chunk, missing or additional data, or reading or writing failed.
    pub fn open_stream(
        &self,
        mut from: impl Read,
        mut to: impl Write,
        threads: usize,
    ) -> Result<(), SealError> {
        let expected = self.sealed.bytes;
        let chunks = chunks_of(expected);
        let mut done = 0;
        let mut first = 0;
        while first < chunks {
            let want = (expected - done).min(batch_bytes(threads) as u64) as usize;
            let mut batch = read_batch(&mut from, want)?;
            if batch.len() < want {
                return Err(SealError::Truncated {
                    found: done + batch.len() as u64,
                    expected,
                });
            }
            self.open_batch(&mut batch, first, chunks, threads)?;
            to.write_all(&batch)?;
            done += batch.len() as u64;
            first += chunks_of(batch.len() as u64);
        }
        if from.read(&mut [0])? != 0 {
            return Err(SealError::Longer { expected });
        }
        Ok(())
    }

    fn open_batch(
        &self,
        batch: &mut [u8],
        first: u64,
        end: u64,
        threads: usize,
    ) -> Result<(), SealError> {
        let chunks = chunks_of(batch.len() as u64);
        let mut tags: Vec<Tag> = (0..chunks).map(|at| self.sealed.tag(first + at)).collect();
        let work = parts(batch, &mut tags, threads);
        std::thread::scope(|scope| {
            let threads: Vec<_> = work
                .into_iter()
                .map(|(part, data, tags)| {
                    let from = first + part;
                    scope.spawn(move || {
                        for (index, (chunk, tag)) in chunks_in(data).zip(tags).enumerate() {
                            let index = from + index as u64;
                            self.cipher
                                .open(index as u32, index + 1 == end, chunk, tag)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            // In their order, so that the first wrong chunk is the one that is named.
            threads.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }
}

fn batch_bytes(threads: usize) -> usize {
    threads.max(1) * CHUNKS_PER_THREAD * CHUNK_BYTES
}

/// Reads until there are `bytes` or there are no more.
fn read_batch(from: &mut impl Read, bytes: usize) -> io::Result<Vec<u8>> {
    let mut batch = Vec::with_capacity(bytes);
    from.take(bytes as u64).read_to_end(&mut batch)?;
    Ok(batch)
}

/// The chunks of some data; one empty chunk of nothing.
fn chunks_in(data: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
    let empty = data.is_empty();
    let (only, many) = if empty {
        (Some(data), None)
    } else {
        (None, Some(data))
    };
    only.into_iter().chain(
        many.into_iter()
            .flat_map(|data| data.chunks_mut(CHUNK_BYTES)),
    )
}

/// Contiguous parts of a batch, with their first chunk's number and their tags.
fn parts<'a>(
    batch: &'a mut [u8],
    tags: &'a mut [Tag],
    threads: usize,
) -> Vec<(u64, &'a mut [u8], &'a mut [Tag])> {
    if batch.is_empty() {
        return vec![(0, batch, tags)];
    }
    let each = tags.len().div_ceil(threads.max(1));
    batch
        .chunks_mut(each * CHUNK_BYTES)
        .zip(tags.chunks_mut(each))
        .enumerate()
        .map(|(part, (data, tags))| ((part * each) as u64, data, tags))
        .collect()
}
