//! Time and randomness of one state transition, which the caller passes to the rules.

use uuid::Uuid;

use super::time::Time;

/// Time and randomness of one transition, drawn once by the caller. The ids that one stamp makes
/// sort in the order in which they were made.
#[derive(Debug, Clone)]
pub struct Stamp {
    pub now: Time,
    /// Random number in `0.0..1.0` for the jitter of retry delays.
    pub chance: f64,
    entropy: u128,
    minted: u32,
}

impl Stamp {
    /// Returns the time and randomness of one transition. `entropy`: 128 random bits for the ids;
    /// `chance`: random number in `0.0..1.0` for jitter.
    pub fn new(now: Time, entropy: u128, chance: f64) -> Stamp {
        Stamp { now, chance, entropy, minted: 0 }
    }

    /// Returns a new UUIDv7: time of the stamp, counter for the order of its ids, random bits. Any
    /// two ids of a stamp differ in the last eight digits too, because people see only these.
    pub fn mint(&mut self) -> Uuid {
        self.mint_at(self.now)
    }

    /// Returns a new UUIDv7 as [`Stamp::mint`] does, but with the time `moment`.
    pub fn mint_at(&mut self, moment: Time) -> Uuid {
        let millis = u128::from(u64::try_from(moment.as_millis()).unwrap_or(0)) & 0xffff_ffff_ffff;
        // Ids must sort by the counter, but a UUID's variant bits lie between its two parts.
        let upper = u128::from(self.minted >> 14) & 0x0fff;
        let lower = u128::from(self.minted & 0x3fff);
        // An odd factor makes each product different, and so the last digits of all ids.
        let spread = u128::from(self.minted).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let random = self.entropy.wrapping_add(spread) & ((1 << 48) - 1);
        self.minted = self.minted.wrapping_add(1);
        Uuid::from_u128(millis << 80 | 0x7 << 76 | upper << 64 | 0b10 << 62 | lower << 48 | random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minted_ids_are_version_7_distinct_and_carry_the_time() {
        let mut stamp = Stamp::new(Time::from_millis(1_700_000_000_123), u128::MAX, 0.0);
        let ids: Vec<Uuid> = (0..70_000).map(|_| stamp.mint()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(ids.iter().all(|id| id.get_version_num() == 7));
        assert_eq!(ids[0].as_u128() >> 80, 1_700_000_000_123);
        let ends: std::collections::HashSet<u32> = ids.iter().map(|id| id.as_u128() as u32).collect();
        assert_eq!(ends.len(), ids.len());
    }
}
