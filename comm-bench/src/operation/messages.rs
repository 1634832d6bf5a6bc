//! Messages of a group to the last rank, and back: objects and tensors, acknowledged.
//!
//! What is received is taken as a program takes it: objects into memory of the group's pool, tensors
//! into buffers that are used again.

use std::collections::VecDeque;

use bytes::Bytes;
use comm_api::{
    CollectiveGroup, Communicator, RecvOptions, Result, SendOptions, Tensor, TensorDict, TensorMut,
    Work,
};
use serde::{Deserialize, Serialize};

use super::pingpong::direct;
use super::{Buffers, Calls, Case, Route};
use crate::number::Number;
use crate::pattern::Pattern;

/// Objects of up to this size have no tensors.
const PLAIN_BYTES: usize = 256;
/// The tensors of larger ones.
const PARTS: usize = 12;
/// Messages of a checked stream.
const CHECKED_MESSAGES: u64 = 10;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Object,
    Tensor,
}

/// A small object without tensors.
#[derive(Debug, Serialize, Deserialize)]
struct Plain {
    payload: Bytes,
}

/// A message that is ready to be sent again and again.
#[derive(Debug)]
enum Message {
    Plain(Plain),
    Dict(TensorDict),
    Tensor(Tensor),
}

pub(super) struct Messages<'a, T> {
    comm: &'a Communicator,
    group: CollectiveGroup,
    form: Form,
    in_flight: usize,
    buffers: Buffers<T>,
    message: Message,
    /// Destinations of tensors.
    spare: VecDeque<TensorMut>,
}

impl<'a, T: Number> Messages<'a, T> {
    pub(super) fn new(
        comm: &'a Communicator,
        buffers: Buffers<T>,
        form: Form,
        in_flight: usize,
    ) -> Result<Self> {
        Ok(Self {
            comm,
            group: comm.as_group("bench")?,
            form,
            in_flight,
            buffers,
            message: Message::Plain(Plain {
                payload: Bytes::new(),
            }),
            spare: VecDeque::new(),
        })
    }

    fn last(&self) -> u32 {
        self.comm.world_size() - 1
    }

    /// The message of these elements.
    fn message(form: Form, elements: &[T]) -> Result<Message> {
        let whole = || Tensor::from_slice(elements, &[elements.len()]);
        Ok(match form {
            Form::Tensor => Message::Tensor(whole()?),
            Form::Object if size_of_val(elements) <= PLAIN_BYTES => Message::Plain(Plain {
                payload: Bytes::copy_from_slice(whole()?.as_bytes()?),
            }),
            Form::Object => {
                let part = elements.len().div_ceil(PARTS);
                let parts = (0..PARTS).map(|index| {
                    let start = (index * part).min(elements.len());
                    let end = (start + part).min(elements.len());
                    // Tensors of their own, as a program has them.
                    let tensor = Tensor::from_slice(&elements[start..end], &[end - start]);
                    Ok((format!("observation.{index}"), tensor?))
                });
                Message::Dict(parts.collect::<Result<_>>()?)
            }
        })
    }

    fn post(group: &CollectiveGroup, message: &Message, to: u32) -> Result<Work<()>> {
        let options = SendOptions::new().to(to);
        match message {
            Message::Plain(plain) => group.send_async_with(plain, &options),
            Message::Dict(dict) => group.send_async_with(dict, &options),
            Message::Tensor(tensor) => group.send_tensor_async_with(tensor, &options),
        }
    }

    fn send(group: &CollectiveGroup, message: &Message, to: u32) -> Result<()> {
        let options = SendOptions::new().to(to);
        match message {
            Message::Plain(plain) => group.send_with(plain, &options),
            Message::Dict(dict) => group.send_with(dict, &options),
            Message::Tensor(tensor) => group.send_tensor_with(tensor, &options),
        }
    }

    /// Receives the next message from a rank; with `check` into the output, else only that.
    fn receive(&mut self, from: u32, check: bool) -> Result<()> {
        let options = RecvOptions::new().from(from);
        let count = self.buffers.case.count;
        match (self.form, count * T::DTYPE.size_bytes() <= PLAIN_BYTES) {
            (Form::Tensor, _) => {
                let spare = match self.spare.pop_front() {
                    Some(spare) => spare,
                    None => TensorMut::zeros(T::DTYPE, &[count])?,
                };
                let got = self.group.recv_tensor_with(spare, &options)?;
                if check {
                    let (_, output) = self.buffers.both_mut()?;
                    output.copy_from_slice(got.as_slice()?);
                }
                self.spare.push_back(got);
            }
            (Form::Object, true) => {
                let got = self.group.recv_with::<Plain>(options)?.into_message();
                if check {
                    // A check, not a measurement: bytes of any alignment become elements by a copy.
                    let mut aligned = TensorMut::zeros(T::DTYPE, &[count])?;
                    copy_parts(aligned.as_mut_bytes()?, [&got.payload[..]].into_iter());
                    let (_, output) = self.buffers.both_mut()?;
                    copy_parts(output, [aligned.as_slice()?].into_iter());
                }
            }
            (Form::Object, false) => {
                let got = self.group.recv_with::<TensorDict>(options)?.into_message();
                if check {
                    let parts = got
                        .iter()
                        .map(|(_, tensor)| tensor.as_slice::<T>())
                        .collect::<Result<Vec<_>>>()?;
                    let (_, output) = self.buffers.both_mut()?;
                    copy_parts(output, parts.into_iter());
                }
            }
        }
        Ok(())
    }

    /// One message each way.
    fn exchange(&mut self, check: bool) -> Result<()> {
        let last = self.last();
        match self.comm.rank() {
            0 => {
                Self::send(&self.group, &self.message, last)?;
                self.receive(last, check)
            }
            rank if rank == last => {
                self.receive(0, check)?;
                Self::send(&self.group, &self.message, 0)
            }
            _ => Ok(()),
        }
    }

    /// Messages to the last rank, of which some are in flight; returns when all are received.
    fn stream(&mut self, calls: u64) -> Result<()> {
        let last = self.last();
        match self.comm.rank() {
            0 => {
                let mut flying = VecDeque::with_capacity(self.in_flight);
                for _ in 0..calls {
                    if flying.len() == self.in_flight
                        && let Some(oldest) = flying.pop_front()
                    {
                        Work::wait(&oldest)?;
                    }
                    flying.push_back(Self::post(&self.group, &self.message, last)?);
                }
                flying.iter().try_for_each(Work::wait)
            }
            rank if rank == last => (0..calls).try_for_each(|_| self.receive(0, false)),
            _ => Ok(()),
        }
    }
}

/// Writes the parts one after the other, as far as there is room.
fn copy_parts<'a, T: Copy + 'a>(output: &mut [T], parts: impl Iterator<Item = &'a [T]>) {
    let mut rest = output;
    for part in parts {
        let len = part.len().min(rest.len());
        let (front, back) = rest.split_at_mut(len);
        front.copy_from_slice(&part[..len]);
        rest = back;
    }
}

impl<T: Number> Calls for Messages<'_, T> {
    fn prepare(&mut self, case: Case) -> Result<Route> {
        self.buffers.start(case, T::resting(None))?;
        self.spare.clear();
        let (input, _) = self.buffers.both()?;
        self.message = Self::message(self.form, input)?;
        Ok(direct())
    }

    fn run(&mut self, calls: u64) -> Result<()> {
        if self.in_flight > 1 {
            return self.stream(calls);
        }
        (0..calls).try_for_each(|_| self.exchange(false))
    }

    fn check(&mut self, round: u64) -> Result<u64> {
        let (rank, ranks) = (self.comm.rank(), self.comm.world_size());
        let last = self.last();
        if rank != 0 && rank != last {
            return Ok(0);
        }
        let count = self.buffers.case.count;
        let mut wrong = 0;
        let messages = if self.in_flight > 1 {
            CHECKED_MESSAGES
        } else {
            1
        };
        for message in 0..messages {
            let round = round * messages + message;
            let expected = Pattern::<T>::of_rank(None, ranks, last - rank, round, count);
            let (input, output) = self.buffers.both_mut()?;
            Pattern::of_rank(None, ranks, rank, round, count).fill(input);
            expected.spoiled().fill(output);
            self.message = Self::message(self.form, input)?;
            self.exchange(true)?;
            let (_, output) = self.buffers.both()?;
            wrong += expected.count_wrong(output, None, ranks);
        }
        Ok(wrong)
    }
}
