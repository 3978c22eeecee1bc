//! Notes of fragments that the first one of their datagram has released, for a host that tells what became of each packet.

/// Fragment that was held, and the one that released it, by the host's numbers of their frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Number of the fragment that was held.
    pub number: u32,
    /// Number of the first fragment of the datagram.
    pub first: u32,
}

/// Fragments released since the host last took the notes; none are kept where no host wants them.
#[derive(Debug, Default)]
pub struct Releases(Vec<Release>);

impl Releases {
    /// Keeps up to `most` notes at a time from now on, for which memory is taken.
    pub fn keep(&mut self, most: usize) {
        self.0.reserve_exact(most.saturating_sub(self.0.len()));
    }

    /// Takes the notes, in the order of events.
    pub fn take(&mut self) -> impl Iterator<Item = Release> {
        self.0.drain(..)
    }

    /// Notes a release, where there is room.
    pub(crate) fn note(&mut self, release: Release) {
        if self.0.len() < self.0.capacity() {
            self.0.push(release);
        }
    }
}
