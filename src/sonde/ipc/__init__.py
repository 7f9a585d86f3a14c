"""The datagram endpoint that libkineto and the agent speak to, and the processes that have spoken."""
