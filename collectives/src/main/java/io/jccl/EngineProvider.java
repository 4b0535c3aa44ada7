package io.jccl;

import io.jccl.device.Device;
import io.jccl.internal.Provided;
import io.jccl.rendezvous.Store;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/**
 * Gives the factory methods of {@link Communicator}, {@link NcclCommunicator}, {@link LocalJob} and
 * {@link Group} access to the engines, which are not exported and on which this package does not
 * depend. It is called when an object is created and when a group begins; operations call the
 * engine's classes directly. Programs use the factory methods, not this interface.
 *
 * <p><b>Threads:</b> any.
 */
public interface EngineProvider {
    /** Holds the only implementation. */
    final class Holder {
        static final EngineProvider ENGINES = Provided.by(EngineProvider.class);

        private Holder() {}
    }

    /**
     * Ranks as threads on the host engine.
     *
     * @param size number of ranks
     * @param options settings of all ranks
     * @return one communicator per rank
     * @see Communicator#local(int, CommunicatorOptions)
     */
    List<Communicator> host(int size, CommunicatorOptions options);

    /**
     * Joins this process to a job of this machine on the host engine.
     *
     * @param environment a launcher's variables
     * @param options settings
     * @return this rank
     * @see Communicator#fromEnvironment(CommunicatorOptions)
     */
    Communicator host(Map<String, String> environment, CommunicatorOptions options);

    /**
     * Ranks of this process on GPUs, over NCCL.
     *
     * @param devices by rank
     * @param options settings of all ranks
     * @return one communicator per rank
     * @see Communicator#local(List, CommunicatorOptions)
     */
    List<Communicator> nccl(List<? extends Device> devices, CommunicatorOptions options);

    /**
     * Joins a rank over NCCL; the ranks find each other in a store.
     *
     * @param store the same for all ranks
     * @param name of the communicator
     * @param rank this rank
     * @param size number of ranks
     * @param device this rank's GPU
     * @param options settings
     * @return this rank
     * @see Communicator#join(Store, String, int, int, Device, CommunicatorOptions)
     */
    Communicator nccl(
            Store store,
            String name,
            int rank,
            int size,
            Device device,
            CommunicatorOptions options);

    /**
     * Joins a rank that a launcher started, over NCCL.
     *
     * @param environment the launcher's variables
     * @param device this rank's GPU
     * @param options settings
     * @return this rank
     * @see Communicator#fromEnvironment(Device, CommunicatorOptions)
     */
    Communicator nccl(Map<String, String> environment, Device device, CommunicatorOptions options);

    /**
     * Joins a rank that {@link NcclCommunicator#grow} adds.
     *
     * @param store the store of the communicator that grows
     * @param name the name passed to grow
     * @param rank in the new communicator
     * @param size of the new communicator
     * @param device this rank's GPU
     * @param options settings
     * @return this rank
     * @see NcclCommunicator#joinGrown
     */
    NcclCommunicator ncclGrown(
            Store store,
            String name,
            int rank,
            int size,
            Device device,
            CommunicatorOptions options);

    /**
     * Whether a launcher's variables choose MPI as the engine.
     *
     * @param environment the variables
     * @return true if {@link #mpi} joins the job
     */
    boolean isMpiChosen(Map<String, String> environment);

    /**
     * Joins this process to its MPI job.
     *
     * @param options settings
     * @return this rank
     * @see Communicator#mpi
     */
    Communicator mpi(CommunicatorOptions options);

    /**
     * Records operations of communicators and submits them together.
     *
     * @param communicators one or more
     * @param body calls the operations
     * @see Group#run(List, Runnable)
     */
    void group(List<? extends Communicator> communicators, Runnable body);

    /**
     * Records operations of one communicator and submits them together; allocates nothing.
     *
     * @param communicator whose operations are recorded
     * @param body calls the operations
     * @see Group#run(Communicator, Runnable)
     */
    void group(Communicator communicator, Runnable body);

    /**
     * The folder in which processes of a job share memory.
     *
     * @return an existing folder
     * @see LocalJob#sharedFolder
     */
    Path sharedFolder();

    /**
     * Removes the files that a job left in shared memory.
     *
     * @param jobId the job's name
     * @see LocalJob#cleanUp
     */
    void cleanUp(String jobId);
}
