use crate::Media;

/// A medium that can be divided by channels, so that several threads drive one device without sharing anything per command.
///
/// A part has the shape, the capabilities and the protected memory of the whole. It takes commands to channels that it owns;
/// each channel is owned by one part. Channels are buses of their own, so a part knows nothing of what others do. What all
/// channels of a device share (its controller, its link to the host) is modelled for each part by itself.
pub trait Divide: Media + Sized + Send + 'static {
    /// A part that owns no channel.
    fn empty_part(&mut self) -> Self;

    /// Whether commands to this channel are taken.
    fn owns(&self, channel: u16) -> bool;

    /// Whether no command to this channel is under way.
    fn is_quiet(&self, channel: u16) -> bool;

    /// Takes over a channel from another part of the same device, as it is.
    ///
    /// # Panics
    /// If the other part does not own it, or commands to it are under way there.
    fn take_channel(&mut self, from: &mut Self, channel: u16);
}
