//! Faults of this program, found by its own checks.

use crate::bench::classify::Disagreement;

/// A fault of this program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// A page cannot be drawn.
    #[error("the page cannot be drawn: {0}")]
    Draw(String),
    /// Two searches of the same rules answer differently.
    #[error(transparent)]
    Disagree(Disagreement),
    /// Frames were lost or counted twice.
    #[error("frames are not conserved: those received are not those accounted for")]
    NotConserved,
    /// A policy that this program has drafted is not sound.
    #[error("the policy drafted is not sound, and was not written")]
    Draft,
}

impl Fault {
    /// Returns advice on the fault.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Fault::Draw(_) => None,
            Fault::Disagree(_) => {
                Some("please report it, with the rules and the trace: one of the searches is wrong")
            }
            Fault::NotConserved => {
                Some("please report it, with the policy and the captures: no count above can be trusted")
            }
            Fault::Draft => Some("please report it, with the diagnostics above; `--nft none` may do"),
        }
    }
}
