//! Cache of measurements: several claims and figures rest on the same runs, each made once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Results by key.
pub(super) struct Known<K, V>(Mutex<HashMap<K, Slot<V>>>);

/// One result; the thread that computes it holds the lock, and others that need it wait.
type Slot<V> = Arc<Mutex<Option<V>>>;

impl<K, V> Default for Known<K, V> {
    fn default() -> Known<K, V> {
        Known(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Known<K, V> {
    /// Returns the result for `key`, made by `make` if there is none yet. `make` must not wait for other threads.
    pub(super) fn get<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        let slot = Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
        let mut held = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*held {
            return Ok(known.clone());
        }
        let made = make()?;
        *held = Some(made.clone());
        Ok(made)
    }
}
