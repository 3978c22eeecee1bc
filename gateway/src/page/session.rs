//! Sessions of browsers: bounded in number and time, in memory alone. A session is worth what the token is that began it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::user::{Hash, hash_of, hex, random};

/// Sessions at once, at most; the one unused for longest makes room.
const MOST: usize = 256;

/// Time after which a user logs in again.
pub(super) const LONGEST: Duration = Duration::from_secs(12 * 3600);

/// Sessions, by the hash of their identifier: a look-up tells nothing of the identifier by its time.
#[derive(Default)]
pub(super) struct Sessions {
    all: Mutex<HashMap<Hash, Session>>,
}

struct Session {
    /// Hash of the token that began the session.
    token: Hash,
    begun: Instant,
    used: Instant,
}

impl Sessions {
    /// Begins a session, and returns its identifier.
    pub(super) fn begin(&self, token: Hash, now: Instant) -> String {
        let id = hex(&random());
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, session| now.duration_since(session.begun) < LONGEST);
        if all.len() >= MOST {
            let oldest = all.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| *id);
            oldest.and_then(|id| all.remove(&id));
        }
        all.insert(hash_of(&id), Session { token, begun: now, used: now });
        id
    }

    /// Returns the hash of the token of a session.
    pub(super) fn token(&self, id: &str, now: Instant) -> Option<Hash> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let session =
            all.get_mut(&hash_of(id)).filter(|session| now.duration_since(session.begun) < LONGEST)?;
        session.used = now;
        Some(session.token)
    }

    /// Ends a session.
    pub(super) fn end(&self, id: &str) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&hash_of(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_by_time_by_request_and_for_room() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let first = sessions.begin([1; 32], now);
        let second = sessions.begin([2; 32], now);
        assert_eq!(sessions.token(&first, now), Some([1; 32]));
        assert_eq!(sessions.token("", now), None);
        assert_eq!(sessions.token(&first, now + LONGEST), None);
        sessions.end(&second);
        assert_eq!(sessions.token(&second, now), None);
        let later = now + Duration::from_secs(1);
        for _ in 0..MOST - 1 {
            sessions.begin([3; 32], later);
        }
        assert_eq!(sessions.token(&first, now), Some([1; 32]));
        sessions.begin([3; 32], later);
        assert_eq!(sessions.token(&first, later), None, "the one unused for longest");
    }
}
