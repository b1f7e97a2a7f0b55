//! What a store says of itself to somebody who does not open it as its writer; lists of stores.

use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::PAGE_BYTES;
use super::error::{StoreError, io_error};
use super::file::{format_error, open_file};
use super::format::{Cause, RESERVED_FRAMES, Root, Superblock};
use super::lock::holder;
use super::medium::{MappedFile, Medium};

/// Summary of a store without reading its index, also while it is written.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Summary {
    /// The program's name.
    pub name: String,
    /// Where.
    pub path: PathBuf,
    /// Bytes of the medium.
    pub bytes: u64,
    /// When it was made, seconds since 1970.
    pub created_s: u64,
    /// The newest epoch with a readable root, if there is something to restore.
    pub epoch: Option<EpochSummary>,
    /// The process that writes it now.
    pub in_use_by: Option<String>,
}

/// Of one epoch, from its root alone.
#[derive(Debug, Clone, serde::Serialize)]
pub struct EpochSummary {
    /// Its number.
    pub number: u64,
    /// Why it was written.
    pub cause: Cause,
    /// When, seconds since 1970.
    pub committed_s: f64,
    /// Bytes of pages in it.
    pub page_bytes: u64,
    /// Bytes of the tree's description.
    pub description_bytes: u64,
}

/// Summary of a store without opening it as a writer, also while it is written.
///
/// # Errors
/// It is missing, cannot be read, or is not a store.
pub fn summary(path: &Path) -> Result<Summary, StoreError> {
    let file = open_file(path, false)?;
    let kind = file
        .metadata()
        .map_err(|error| io_error(path, "read its metadata", error))?
        .file_type();
    // A DAX device cannot be read, only mapped.
    let mapped = kind
        .is_char_device()
        .then(|| MappedFile::map(file.try_clone()?, path, 0, false).map_err(io::Error::other));
    let mapped = mapped
        .transpose()
        .map_err(|error| io_error(path, "map it", error))?;
    let head_bytes = u64::from(RESERVED_FRAMES) * PAGE_BYTES;
    let mut head = vec![0; head_bytes as usize];
    match &mapped {
        Some(mapped) => head.copy_from_slice(mapped.read(0, head_bytes)),
        None => file
            .read_exact_at(&mut head, 0)
            .map_err(|_| StoreError::Foreign {
                path: path.to_owned(),
                reason: "it is too short".to_owned(),
            })?,
    }
    let superblock = Superblock::decode(&head).map_err(|error| format_error(path, error))?;
    let page = PAGE_BYTES as usize;
    let root = [1, 2]
        .into_iter()
        .filter_map(|n| Root::decode(&head[n * page..][..page], superblock.identity).ok())
        .max_by_key(|root| root.epoch)
        .filter(|root| root.cause != Cause::Cleared);
    let shared = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
    let bytes = match &mapped {
        Some(mapped) => mapped.bytes(),
        None => file.metadata().map_or(0, |metadata| metadata.len()),
    };
    Ok(Summary {
        name: superblock.name,
        path: path.to_owned(),
        bytes,
        created_s: superblock.created_ns / 1_000_000_000,
        epoch: root.map(|root| EpochSummary {
            number: root.epoch,
            cause: root.cause,
            committed_s: root.committed_ns as f64 / 1e9,
            page_bytes: root.pages * PAGE_BYTES,
            description_bytes: root.description.bytes,
        }),
        in_use_by: shared.is_err().then(|| {
            holder(&file).map_or_else(|| "another process".to_owned(), |holder| holder.name)
        }),
    })
}

/// All stores in a directory (or the one that `place` itself is), by name.
///
/// # Errors
/// The directory cannot be read. What is in it and is not a store is left out, damaged ones
/// come as errors.
pub fn list(place: &Path) -> Result<Vec<Result<Summary, StoreError>>, StoreError> {
    let metadata =
        std::fs::metadata(place).map_err(|error| io_error(place, "read its metadata", error))?;
    if !metadata.is_dir() {
        return Ok(vec![summary(place)]);
    }
    let entries = std::fs::read_dir(place).map_err(|error| io_error(place, "read it", error))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "store")
        })
        .collect();
    paths.sort();
    Ok(paths.iter().map(|path| summary(path)).collect())
}
