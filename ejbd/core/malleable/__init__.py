"""FCFS-malleable: running jobs are folded in place onto half of their processors, so that the next one can start.

After Utrera, Tabik, Corbalan & Labarta, "A Job Scheduling Approach for Multi-core Clusters Based on Virtual
Malleability" (Euro-Par 2012), with two misprints of its Algorithm 1 put right (`folding`).
"""
