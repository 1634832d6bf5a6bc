//! The receiving end's part: answering a request on the control thread.

use std::os::fd::OwnedFd;
use std::time::Instant;

use bytes::Bytes;
use comm_core::{ConnectHandle, Error, ErrorKind, Rank, Result};
use tokio::sync::mpsc;

use super::{ConnectMessage, ConnectRequest, ConnectedEdge, Reply, receiving_lane};
use crate::communicator::Core;
use crate::edge::candidates::candidate;
use crate::edge::ends::RecvEnd;
use crate::edge::prove;
use crate::lane::Mail;

impl Core {
    /// A message of a connecting peer; called on the control thread.
    pub(crate) fn on_connect_message(
        &self,
        from: Rank,
        message: ConnectMessage,
        fds: Vec<OwnedFd>,
    ) {
        match message {
            ConnectMessage::Request(request) => {
                let Some(core) = self.this() else { return };
                let (sender, news) = mpsc::unbounded_channel();
                self.connector
                    .lock()
                    .answered
                    .insert((from, request.id), sender);
                self.process.spawn(async move {
                    let id = request.id;
                    core.answer(from, request, fds, news).await;
                    core.connector.lock().answered.remove(&(from, id));
                });
            }
            ConnectMessage::Accept { id, .. }
            | ConnectMessage::Refuse { id, .. }
            | ConnectMessage::Result { id, .. } => {
                if let Some(asked) = self.connector.lock().asked.get(&id) {
                    // Nobody listens to an attempt that was given up.
                    let _ = asked.send((message, fds));
                }
            }
            ConnectMessage::Withdraw { id, .. } => {
                if let Some(answered) = self.connector.lock().answered.get(&(from, id)) {
                    let _ = answered.send((message, fds));
                }
            }
        }
    }

    /// Serves one request of a sender.
    async fn answer(
        &self,
        from: Rank,
        request: ConnectRequest,
        fds: Vec<OwnedFd>,
        mut news: mpsc::UnboundedReceiver<Reply>,
    ) {
        let id = request.id;
        let deadline = Instant::now() + self.connect_timeout;
        let mut accepted = false;
        let serve = self.serve(from, &request, fds, deadline, &mut accepted);
        let served = tokio::select! {
            served = serve => served,
            _ = news.recv() => return,
        };
        let (key, channel) = (receiving_lane(from, request.index), request.channel);
        let result = match served {
            Ok(end) => {
                self.connector.note(ConnectedEdge {
                    peer: from,
                    sends: false,
                    channel,
                    index: request.index,
                    transport: request.transport,
                    passed_over: Vec::new(),
                });
                if let Some(lane) = self.lane(key) {
                    lane.deliver(Mail::Recv { channel, end }, self.process.doorbells());
                }
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        };
        let message = match result {
            Err(reason) if !accepted => ConnectMessage::Refuse { id, reason },
            result => ConnectMessage::Result { id, result },
        };
        // A sender that is gone learns nothing; its death is told by the control plane.
        let _ = self.tell_connect(from, &message, Vec::new());
    }

    async fn serve(
        &self,
        from: Rank,
        request: &ConnectRequest,
        fds: Vec<OwnedFd>,
        deadline: Instant,
        accepted: &mut bool,
    ) -> Result<RecvEnd> {
        let edge = self
            .edge(from, self.rank, request.index)?
            .on_channel(request.channel);
        if request.step_bytes != edge.step_bytes as u64 {
            return Err(Error::new(
                ErrorKind::InvalidConfiguration,
                format!(
                    "rank {from} uses steps of {} bytes, rank {} of {}; set COMM_STEP_BYTES alike",
                    request.step_bytes, self.rank, edge.step_bytes
                ),
            ));
        }
        let transport = self
            .transports
            .iter()
            .find(|transport| transport.name() == request.transport)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Unavailable,
                    "the transport is not registered here",
                )
                .with("transport", &request.transport)
            })?;
        if let Some(reason) = candidate(transport.as_ref(), &edge) {
            return Err(Error::new(ErrorKind::Unavailable, reason));
        }
        let mut setup = transport.setup_recv(&edge, deadline).await?;
        let handle = setup.handle()?;
        let pair = self.neighbours.pair(from).cloned();
        let accept = ConnectMessage::Accept {
            id: request.id,
            handle: handle.bytes.to_vec(),
            regions: pair.as_ref().map(|pair| pair.generation()),
        };
        self.tell_connect(from, &accept, handle.fds)?;
        *accepted = true;
        let remote = ConnectHandle {
            bytes: Bytes::from(request.handle.clone()),
            fds,
        };
        let conn = setup.connect(remote, deadline).await?;
        let mut end = RecvEnd::new(self.rank, from, transport.name(), conn)?;
        if let Some(pair) = pair {
            end = end.with_regions(pair);
        }
        prove::receive_proof(&mut end, request.id, edge.step_bytes, deadline).await?;
        Ok(end)
    }
}
