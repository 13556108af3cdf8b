//! Choices from a list of bytes: whoever draws the bytes can shrink them, and the choices with them.

/// Bytes that are read as choices. When they are used up, every choice is the first.
#[derive(Debug, Clone)]
pub struct Dice {
    bytes: Vec<u8>,
    at: usize,
}

impl Dice {
    /// Choices from these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, at: 0 }
    }

    /// A number below `sides`, of which there are at most 256.
    pub fn roll(&mut self, sides: usize) -> usize {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(byte) % sides
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.roll(times) == times - 1
    }

    /// One of these.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.roll(choices.len())].clone()
    }
}
