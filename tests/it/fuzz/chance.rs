//! Pseudo-random choices: the same seed and case number give the same case.

use crate::setup::split_mix;

/// Generator of pseudo-random numbers.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64, case: u64) -> Chance {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ case);
        // The first numbers of neighbouring cases are alike, so they are skipped.
        chance.next();
        chance.next();
        chance
    }

    pub fn next(&mut self) -> u64 {
        split_mix(&mut self.0)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Returns true once in `times` calls on average.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Shuffles the slice.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for at in (1..things.len()).rev() {
            things.swap(at, self.below(at + 1));
        }
    }
}
