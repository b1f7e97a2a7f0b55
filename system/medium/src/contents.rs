//! What a medium holds: pages, where they are not zero.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{LINE_BYTES, Line, PAGE_BYTES, WORD_BYTES};

const PAGE_WORDS: usize = (PAGE_BYTES / WORD_BYTES) as usize;
type Page = [u64; PAGE_WORDS];

/// The contents of a medium of any size; a copy shares the pages that stay the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents(BTreeMap<u64, Arc<Page>>);

impl Contents {
    /// The page's words; None: zeros.
    pub fn page(&self, number: u64) -> Option<&Page> {
        self.0.get(&number).map(|page| &**page)
    }

    /// Numbers of the pages that were written to.
    pub fn pages(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
    }

    /// The line at an offset.
    pub fn line(&self, offset: u64) -> Line {
        let at = (offset % PAGE_BYTES / WORD_BYTES) as usize;
        self.page(offset / PAGE_BYTES).map_or([0; 8], |page| {
            page[at..at + 8].try_into().expect("a line of eight words")
        })
    }

    /// Puts a line.
    pub fn set_line(&mut self, offset: u64, words: &Line) {
        let at = (offset % PAGE_BYTES / LINE_BYTES * LINE_BYTES / WORD_BYTES) as usize;
        self.page_mut(offset)[at..at + 8].copy_from_slice(words);
    }

    /// Puts a word.
    pub fn set_word(&mut self, offset: u64, value: u64) {
        self.page_mut(offset)[(offset % PAGE_BYTES / WORD_BYTES) as usize] = value;
    }

    fn page_mut(&mut self, offset: u64) -> &mut Page {
        let page = self.0.entry(offset / PAGE_BYTES);
        Arc::make_mut(page.or_insert_with(|| Arc::new([0; PAGE_WORDS])))
    }

    /// What these bytes hold; a page that is cut is filled up with zeros.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut pages = BTreeMap::new();
        for (number, bytes) in (0..).zip(bytes.chunks(PAGE_BYTES as usize)) {
            if bytes.iter().all(|&byte| byte == 0) {
                continue;
            }
            let mut page = [0; PAGE_WORDS];
            for (word, bytes) in page.iter_mut().zip(bytes.chunks(WORD_BYTES as usize)) {
                let mut whole = [0; WORD_BYTES as usize];
                whole[..bytes.len()].copy_from_slice(bytes);
                *word = u64::from_le_bytes(whole);
            }
            pages.insert(number, Arc::new(page));
        }
        Self(pages)
    }

    /// The first `length` bytes.
    pub fn to_bytes(&self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for (number, out) in (0..).zip(bytes.chunks_mut(PAGE_BYTES as usize)) {
            let words = self.page(number).into_iter().flatten();
            for (out, word) in out.chunks_mut(WORD_BYTES as usize).zip(words) {
                out.copy_from_slice(&word.to_le_bytes()[..out.len()]);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_they_were() {
        let mut bytes = vec![0; 3 * PAGE_BYTES as usize - 5];
        bytes[PAGE_BYTES as usize + 7] = 1;
        *bytes.last_mut().unwrap() = 2;
        let contents = Contents::from_bytes(&bytes);
        assert_eq!(contents.pages().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(contents.to_bytes(bytes.len()), bytes);
    }
}
