//! Random choices from a seed: the same seed and the same number give the same case.

use crate::setup::split_mix;

/// Numbers that look random.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64, case: u64) -> Chance {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ case);
        // Neighbours begin far from each other.
        chance.next();
        chance.next();
        chance
    }

    pub fn next(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Whether something holds that holds once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// The same things in another order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for at in (1..things.len()).rev() {
            things.swap(at, self.below(at + 1));
        }
    }
}
